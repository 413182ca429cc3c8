-- Rows of jobs: how they are put and dropped together with what is found through them.
-- A job's row is a line `TENANT STATUS PLACE` and then JSON that is never looked into here. PLACE is the job's member of
-- `waiting`, empty unless it is queued.

local HEAD = '^(%S+ %S+ [^\n]*)\n'
local ROW = '^(%S+) (%S+) ([^\n]*)\n'

-- Each command takes many members at once, since a command costs more than a member; but only so many words fit onto
-- Lua's stack. Even, so that pairs stay together.
local WORDS_MOST = 4000

-- Gives the words from `first` to `last` to a command, in as many calls as it takes.
local function call_with(command, key, words, first, last)
  for from = first, last, WORDS_MOST do
    redis.call(command, key, unpack(words, from, math.min(last, from + WORDS_MOST - 1)))
  end
end

-- What a hash holds of these names, false where it holds nothing.
local function held_of(key, names)
  local held = {}
  for from = 1, #names, WORDS_MOST do
    local some = redis.call('HMGET', key, unpack(names, from, math.min(#names, from + WORDS_MOST - 1)))
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

local function leave(moves, id, head)
  local tenant, status, place = string.match(head, ROW)
  local gone, unplaced = moves.unindexed, moves.unplaced
  gone[#gone + 1] = 's ' .. status .. ' ' .. id
  gone[#gone + 1] = 't ' .. tenant .. ' ' .. status .. ' ' .. id
  if place ~= '' then
    unplaced[#unplaced + 1] = place
  end
end

local function enter(moves, id, head)
  local tenant, status, place = string.match(head, ROW)
  local new, placed = moves.indexed, moves.placed
  local count = #new
  new[count + 1], new[count + 2] = '0', 's ' .. status .. ' ' .. id
  new[count + 3], new[count + 4] = '0', 't ' .. tenant .. ' ' .. status .. ' ' .. id
  if place ~= '' then
    placed[#placed + 1] = '0'
    placed[#placed + 1] = place
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
    local row, before = args[at + 2 * number - 1], held[number]
    -- The line is the same for a job that only got another field: then it stays where it is.
    if not before or string.match(before, HEAD) ~= string.match(row, HEAD) then
      if before then
        leave(moves, ids[number], before)
      end
      enter(moves, ids[number], row)
    end
  end
  for number = set + 1, set + drop do
    if held[number] then
      leave(moves, ids[number], held[number])
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
    if not string.find(row, HEAD) then
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
