-- Rows of jobs: how they are put and dropped together with what is found through them.
-- A job's row is a line `TENANT STATUS PLACE` and then JSON that is never looked into here. PLACE is the job's member of
-- `waiting`, empty unless it is queued.

local ROW = '^(%S+) (%S+) ([^\n]*)\n'

-- Each command takes many members at once, since a command costs more than a member; but only so many words fit onto
-- Lua's stack. Even, so that pairs stay together.
local WORDS_MAX = 4000

-- Gives the words from `first` to `last` to a command, in as many calls as it takes.
local function call_with(command, key, words, first, last)
  for from = first, last, WORDS_MAX do
    redis.call(command, key, unpack(words, from, math.min(last, from + WORDS_MAX - 1)))
  end
end

-- What a hash holds of these names, false where it holds nothing.
local function held_of(key, names)
  local held = {}
  for from = 1, #names, WORDS_MAX do
    local some = redis.call('HMGET', key, unpack(names, from, math.min(#names, from + WORDS_MAX - 1)))
    for number = 1, #some do
      held[from + number - 1] = some[number]
    end
  end
  return held
end

-- What is to leave and to enter the sorted sets: members, and for those that enter a score before each.
local function no_moves()
  return { unplaced = {}, placed = {}, unindexed = {}, indexed = {} }
end

local function leave_index(moves, id, tenant, status)
  local gone = moves.unindexed
  local count = #gone
  gone[count + 1] = 's ' .. status .. ' ' .. id
  gone[count + 2] = 't ' .. tenant .. ' ' .. status .. ' ' .. id
end

local function enter_index(moves, id, tenant, status)
  local new = moves.indexed
  local count = #new
  new[count + 1], new[count + 2] = '0', 's ' .. status .. ' ' .. id
  new[count + 3], new[count + 4] = '0', 't ' .. tenant .. ' ' .. status .. ' ' .. id
end

local function leave_queue(moves, place)
  if place ~= '' then
    moves.unplaced[#moves.unplaced + 1] = place
  end
end

local function enter_queue(moves, place)
  if place ~= '' then
    local placed = moves.placed
    placed[#placed + 1] = '0'
    placed[#placed + 1] = place
  end
end

-- What a job's new row moves, if `before` is the one that it has (false: none). Each row is looked at once.
local function note_job(moves, id, before, row)
  local tenant, status, place = string.match(row, ROW)
  if not before then
    enter_index(moves, id, tenant, status)
    enter_queue(moves, place)
    return
  end
  local old_tenant, old_status, old_place = string.match(before, ROW)
  if old_status ~= status or old_tenant ~= tenant then
    leave_index(moves, id, old_tenant, old_status)
    enter_index(moves, id, tenant, status)
  end
  if old_place ~= place then
    leave_queue(moves, old_place)
    enter_queue(moves, place)
  end
end

local function make(keys, moves)
  call_with('ZREM', keys[5], moves.unplaced, 1, #moves.unplaced)
  call_with('ZADD', keys[5], moves.placed, 1, #moves.placed)
  call_with('ZREM', keys[6], moves.unindexed, 1, #moves.unindexed)
  call_with('ZADD', keys[6], moves.indexed, 1, #moves.indexed)
end

-- Puts jobs, each named once, and drops others; gives where the next arguments begin.
local function put_and_drop_jobs(keys, args, at, set, drop)
  local ids, moves, dropped_at = {}, no_moves(), at + 2 * set
  for number = 1, set do
    ids[number] = args[at + 2 * number - 2]
  end
  for number = 1, drop do
    ids[set + number] = args[dropped_at + number - 1]
  end
  local held = held_of(keys[2], ids)
  for number = 1, set do
    note_job(moves, ids[number], held[number], args[at + 2 * number - 1])
  end
  for number = set + 1, set + drop do
    if held[number] then
      local tenant, status, place = string.match(held[number], ROW)
      leave_index(moves, ids[number], tenant, status)
      leave_queue(moves, place)
    end
  end
  make(keys, moves)
  call_with('HSET', keys[2], args, at, dropped_at - 1)
  call_with('HDEL', keys[2], args, dropped_at, dropped_at + drop - 1)
  return dropped_at + drop
end

-- Looks through `set, drop` counts from `first` on and the rows behind them:
--   jobs set, jobs dropped, nodes set, nodes dropped, tenants set, tenants dropped, then (id, row) or id in that order.
-- Gives the counts and where the rows begin, or nil and what is wrong.
local function counted_rows(args, first)
  local counts, total = {}, 0
  for number = 0, 5 do
    local text = args[first + number]
    if not is_count(text) then
      return nil, 'a count of rows is a number', text
    end
    counts[number + 1] = tonumber(text)
    total = total + counts[number + 1] * (number % 2 == 0 and 2 or 1)
  end
  if #args ~= first + 5 + total then
    return nil, 'as many arguments as the counts of rows say', #args
  end
  for job = 1, counts[1] do
    local row = args[first + 6 + 2 * job - 1]
    -- Only that there is a line, since this is done for every row: the writer makes the line by `job_text`.
    if not string.find(row, '\n', 1, true) then
      return nil, 'a job row begins with TENANT STATUS PLACE', string.sub(row, 1, 50)
    end
  end
  return counts, first + 6
end

-- Puts a hash's rows and drops others; gives where the next arguments begin.
local function put_and_drop(key, args, at, set, drop)
  local dropped_at = at + 2 * set
  call_with('HSET', key, args, at, dropped_at - 1)
  call_with('HDEL', key, args, dropped_at, dropped_at + drop - 1)
  return dropped_at + drop
end
