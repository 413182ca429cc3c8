-- Puts rows into a view that is being built.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 id of this rebuild   2 wall time now, ms   3-8 counts and 9... rows as `counted_rows` in rows.lua takes them
-- returns {'OK'} | {'NOT_READY', id} another rebuild has begun, or none is under way

local function load_rows(keys, args)
  if not is_cursor(args[2]) then
    return refuse('times are numbers', args[2])
  end
  local counts, at, got = counted_rows(args, 3)
  if not counts then
    return refuse(at, got)
  end
  local view = stored(keys)
  if view.ready or view.rebuild == '' or view.rebuild ~= args[1] then
    return { 'NOT_READY', view.rebuild }
  end
  at = put_and_drop_jobs(keys, args, at, counts[1], counts[2])
  at = put_and_drop(keys[3], args, at, counts[3], counts[4])
  put_and_drop(keys[4], args, at, counts[5], counts[6])
  redis.call('HSET', keys[1], 'rebuild_ms', args[2])
  return { 'OK' }
end

register('load_rows', load_rows)
