-- Makes a view that was built whole visible. One that lost rows meanwhile (a Redis that came back without its tail) is not.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 id of this rebuild   2 cursor   3 version   4 chain   5 at_ms   6 pools (JSON)
--       7 jobs   8 nodes   9 tenants   10 queued jobs, that there must be
-- returns {'OK', cursor} | {'NOT_READY', id} another rebuild has begun, or rows are missing

local function finish_rebuild(keys, args)
  for _, number in ipairs({ 2, 3, 5, 7, 8, 9, 10 }) do
    if not is_cursor(args[number]) then
      return refuse('argument ' .. number .. ' is a number', args[number])
    end
  end
  local view = stored(keys)
  if view.ready or view.rebuild == '' or view.rebuild ~= args[1] then
    return { 'NOT_READY', view.rebuild }
  end
  local is_whole = redis.call('HLEN', keys[2]) == tonumber(args[7])
    and redis.call('HLEN', keys[3]) == tonumber(args[8])
    and redis.call('HLEN', keys[4]) == tonumber(args[9])
    and redis.call('ZCARD', keys[5]) == tonumber(args[10])
    and redis.call('ZCARD', keys[6]) == 2 * tonumber(args[7])
  if not is_whole then
    return { 'NOT_READY', view.rebuild }
  end
  redis.call('HDEL', keys[1], 'rebuild', 'rebuild_ms')
  redis.call('HSET', keys[1], 'cursor', args[2], 'version', args[3], 'chain', args[4], 'at_ms', args[5], 'pools', args[6],
    'ready', '1', 'sizes', sizes(keys))
  return { 'OK', args[2] }
end

register('finish_rebuild', finish_rebuild)
