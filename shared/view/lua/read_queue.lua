-- The head of one queue, in its order, and how long the queue is.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 queue   2 the most jobs, 1 to 10000
-- returns {'OK' or 'FENCED', version, cursor, at_ms, jobs in the queue, row, position, row, position, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

local function read_queue(keys, args)
  local limit = is_count(args[2]) and tonumber(args[2])
  if not limit or limit < 1 or limit > 10000 or #args ~= 2 then
    return refuse('1 to 10000 jobs', args[2])
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local queue = cut(args[1])
  local places = redis.call('ZRANGEBYLEX', keys[5], '[' .. queue .. ' ', '(' .. queue .. '!', 'LIMIT', 0, limit)
  local ids = {}
  for number, place in ipairs(places) do
    ids[number] = string.match(place, '(%S+)$')
  end
  local answer = found(view)
  answer[5] = queue_length(keys, queue)
  return add_jobs(answer, keys, ids)
end

register_read('read_queue', read_queue)
