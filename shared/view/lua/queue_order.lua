-- Positions in queues. All queues share one sorted set; a member begins with its queue and a space, and members of one
-- queue sort as it serves. So a job's position is its rank less the rank at which its queue begins.

local function first_rank(keys, queue)
  return redis.call('ZLEXCOUNT', keys[5], '-', '(' .. queue .. ' ')
end

local function queue_length(keys, queue)
  return redis.call('ZLEXCOUNT', keys[5], '[' .. queue .. ' ', '(' .. queue .. '!')
end

-- The position of the job with this row, from 0, or -1 when it is not queued. `first_ranks` remembers what was asked.
local function position(keys, row, first_ranks)
  local place = select(3, string.match(row, ROW))
  if place == '' then
    return -1
  end
  local queue = string.match(place, '^(%S*) ')
  if not first_ranks[queue] then
    first_ranks[queue] = first_rank(keys, queue)
  end
  -- A row that a foreign writer has changed may name a place that is none.
  local rank = redis.call('ZRANK', keys[5], place)
  return rank and rank - first_ranks[queue] or -1
end

-- Adds to an answer the row and the position of each of these jobs.
local function add_jobs(answer, keys, ids)
  local first_ranks = {}
  local rows = held_of(keys[2], ids)
  for number = 1, #ids do
    local row = rows[number]
    if row then
      answer[#answer + 1] = row
      answer[#answer + 1] = position(keys, row, first_ranks)
    end
  end
  return answer
end
