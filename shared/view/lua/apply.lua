-- Moves the view from one cursor of the log to a later one: rows and cursor together, or nothing.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 cursor that the view must have   2 cursor that it gets   3 version   4 chain   5 at_ms   6 pools (JSON)
--       7-12 counts and 13... rows as `counted_rows` in rows.lua takes them
-- returns {'OK', cursor} | {'DUP', cursor} the view is further already | {'GAP', cursor} it is less far: its tail was lost
--         | {'NOT_READY'} it is not there, not whole, or of another form

local function apply(keys, args)
  if not is_cursor(args[1]) or not is_cursor(args[2]) or not is_before(args[1], args[2]) then
    return refuse('a cursor moves forward', tostring(args[1]) .. ' to ' .. tostring(args[2]))
  end
  if not is_cursor(args[3]) or not is_cursor(args[5]) then
    return refuse('version and at_ms are numbers', tostring(args[3]) .. ', ' .. tostring(args[5]))
  end
  local counts, at, got = counted_rows(args, 7)
  if not counts then
    return refuse(at, got)
  end
  local view = stored(keys)
  if not view.ready then
    return { 'NOT_READY' }
  end
  if view.cursor ~= args[1] then
    return { is_before(args[1], view.cursor) and 'DUP' or 'GAP', view.cursor }
  end
  at = put_and_drop_jobs(keys, args, at, counts[1], counts[2])
  at = put_and_drop(keys[3], args, at, counts[3], counts[4])
  put_and_drop(keys[4], args, at, counts[5], counts[6])
  redis.call('HSET', keys[1], 'cursor', args[2], 'version', args[3], 'chain', args[4], 'at_ms', args[5], 'pools', args[6],
    'sizes', sizes(keys))
  return { 'OK', args[2] }
end

register('apply', apply)
