-- Every tenant that has a quota, uses something, or has a job that is remembered; in no order.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 number n of statuses that count as waiting   2 to n+1 these   n+2... those that count as running;
--       each once
-- returns {'OK' or 'FENCED', version, cursor, at_ms, tenant, row or empty, jobs waiting, jobs running, tenant, ...} | {'NOT_READY'}
--         | {'NONE'}

local function count_jobs(keys, tenant, args, first, last)
  local count = 0
  for number = first, last do
    local prefix = 't ' .. tenant .. ' ' .. args[number] .. ' '
    count = count + redis.call('ZLEXCOUNT', keys[6], '[' .. prefix, '(' .. prefix .. '\255')
  end
  return count
end

-- Goes from tenant to tenant through the index, without looking at their jobs.
local function add_tenants_with_jobs(keys, rows)
  local from = '(t '
  while true do
    local member = redis.call('ZRANGEBYLEX', keys[6], from, '(t\255', 'LIMIT', 0, 1)[1]
    if not member then
      return
    end
    local tenant = string.match(member, '^t (%S+) ')
    rows[tenant] = rows[tenant] or ''
    from = '(t ' .. tenant .. '!'
  end
end

local function read_tenants(keys, args)
  if not is_count(args[1]) or tonumber(args[1]) >= #args or not are_statuses(args, 2) then
    return refuse('the number of waiting statuses, and statuses of jobs, each once', args[1])
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local rows, stored_rows = {}, redis.call('HGETALL', keys[4])
  for number = 1, #stored_rows, 2 do
    rows[stored_rows[number]] = stored_rows[number + 1]
  end
  add_tenants_with_jobs(keys, rows)
  local answer, waiting_last = found(view), tonumber(args[1]) + 1
  for tenant, row in pairs(rows) do
    answer[#answer + 1] = tenant
    answer[#answer + 1] = row
    answer[#answer + 1] = count_jobs(keys, tenant, args, 2, waiting_last)
    answer[#answer + 1] = count_jobs(keys, tenant, args, waiting_last + 1, #args)
  end
  return answer
end

register_read('read_tenants', read_tenants)
