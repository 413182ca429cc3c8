-- Rows of jobs: how they are put and dropped together with what is found through them.
-- A job's row is a line `TENANT STATUS PLACE` and then JSON that is never looked into here. PLACE is the job's member of
-- `waiting`, empty unless it is queued.

local ROW = '^(%S+) (%S+) ([^\n]*)\n'

local function members(id, tenant, status)
  return 's ' .. status .. ' ' .. id, 't ' .. tenant .. ' ' .. status .. ' ' .. id
end

local function put_job(keys, id, row)
  local before = redis.call('HGET', keys[2], id)
  if before == row then
    return
  end
  redis.call('HSET', keys[2], id, row)
  local tenant, status, place = string.match(row, ROW)
  if before then
    local old_tenant, old_status, old_place = string.match(before, ROW)
    if old_place ~= place and old_place ~= '' then
      redis.call('ZREM', keys[5], old_place)
    end
    if old_tenant ~= tenant or old_status ~= status then
      redis.call('ZREM', keys[6], members(id, old_tenant, old_status))
    end
    if old_place == place then
      place = ''
    end
    if old_tenant == tenant and old_status == status then
      tenant = nil
    end
  end
  if place ~= '' then
    redis.call('ZADD', keys[5], 0, place)
  end
  if tenant then
    local by_status, by_tenant = members(id, tenant, status)
    redis.call('ZADD', keys[6], 0, by_status, 0, by_tenant)
  end
end

local function drop_job(keys, id)
  local before = redis.call('HGET', keys[2], id)
  if not before then
    return
  end
  local tenant, status, place = string.match(before, ROW)
  if place ~= '' then
    redis.call('ZREM', keys[5], place)
  end
  redis.call('ZREM', keys[6], members(id, tenant, status))
  redis.call('HDEL', keys[2], id)
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
    if not string.find(row, ROW) then
      return nil, 'a job row begins with TENANT STATUS PLACE', string.sub(row, 1, 50)
    end
  end
  return counts, first + 6
end

-- Puts a hash's rows and drops others; gives where the next arguments begin.
local function put_and_drop(key, args, at, set, drop)
  for _ = 1, set do
    redis.call('HSET', key, args[at], args[at + 1])
    at = at + 2
  end
  for _ = 1, drop do
    redis.call('HDEL', key, args[at])
    at = at + 1
  end
  return at
end
