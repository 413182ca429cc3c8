-- The jobs and arrays that have this id of their tenants, each as TENANT/ID; in no order.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 the id, without tenant   2... the statuses in which an element of an array may be, at least one, each once
-- returns {'OK' or 'FENCED', version, cursor, at_ms, job, job, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

-- So many jobs named as elements are, but which are none (`hello.0x`), are passed over.
local NAMESAKES_MOST = 100

local ID_BYTES_MOST = 128

-- An array that is not over has no row of its own, and of its elements any may be forgotten.
local function has_element(keys, tenant, job, statuses)
  for number = 2, #statuses do
    local prefix = 't ' .. tenant .. ' ' .. statuses[number] .. ' '
    local start = prefix .. job .. '.'
    -- ':' is the sign behind '9'.
    local some = redis.call('ZRANGEBYLEX', keys[6], '[' .. start .. '0', '(' .. start .. ':', 'LIMIT', 0, NAMESAKES_MOST)
    for _, member in ipairs(some) do
      if string.find(string.sub(member, #start + 1), '^%d+$') then
        return true
      end
    end
  end
  return false
end

local function read_names(keys, args)
  if #args < 2 or #args[1] > ID_BYTES_MOST or not are_statuses(args, 2) then
    return refuse('an id of at most 128 bytes, and statuses of jobs, each once', string.sub(args[1] or '', 1, 50))
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local tenants, answer = {}, found(view)
  add_tenants_with_jobs(keys, tenants)
  for tenant in pairs(tenants) do
    local job = tenant .. '/' .. args[1]
    if redis.call('HGET', keys[2], job) or has_element(keys, tenant, job, args) then
      answer[#answer + 1] = job
    end
  end
  return answer
end

register_read('read_names', read_names)
