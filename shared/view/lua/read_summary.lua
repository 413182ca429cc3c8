-- The cell in a few numbers.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  statuses of jobs to count, each once
-- returns {'OK' or 'FENCED', version, cursor, at_ms, pools (JSON), nodes, number of jobs of each status in the order given...,
--          queue, its length, queue, its length, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

local function read_summary(keys, args)
  if not are_statuses(args, 1) then
    return refuse('statuses of jobs, each once', #args .. ' arguments')
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local answer = found(view)
  answer[5] = redis.call('HGET', keys[1], 'pools') or '[]'
  answer[6] = redis.call('HLEN', keys[3])
  for _, status in ipairs(args) do
    local prefix = 's ' .. status .. ' '
    answer[#answer + 1] = redis.call('ZLEXCOUNT', keys[6], '[' .. prefix, '(' .. prefix .. '\255')
  end
  local from = '-'
  while true do
    local place = redis.call('ZRANGEBYLEX', keys[5], from, '+', 'LIMIT', 0, 1)[1]
    if not place then
      return answer
    end
    local queue = string.match(place, '^(%S*) ')
    answer[#answer + 1] = queue
    answer[#answer + 1] = queue_length(keys, queue)
    from = '(' .. queue .. '!'
  end
end

register_read('read_summary', read_summary)
