-- The jobs and arrays that have this id of their tenants, each as TENANT/ID; in no order.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 the id, without tenant   2... the statuses in which an element of an array may be, at least one, each once
-- returns {'OK' or 'FENCED', version, cursor, at_ms, job, job, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}
--         | {'TOO_MANY'}: more jobs than are looked at are named as elements are, so that only the log tells

-- So many jobs of all tenants together are passed over that are named as elements are and are none (`hello.0x`).
local NAMESAKES_MAX = 500

local ID_BYTES_MAX = 128

-- Whether an element of the array has this status; `looks` holds how many namesakes may still be passed over.
local function has_element_in(keys, prefix, array, looks)
  local start = prefix .. array .. '.'
  local from = '[' .. start .. '0'
  while looks.left >= 0 do
    -- ':' is the sign behind '9'.
    local member = redis.call('ZRANGEBYLEX', keys[6], from, '(' .. start .. ':', 'LIMIT', 0, 1)[1]
    if not member or string.find(string.sub(member, #start + 1), '^%d+$') then
      return member ~= nil
    end
    looks.left, from = looks.left - 1, '(' .. member
  end
  return false
end

-- An array that is not over has no row of its own, and of its elements any may be forgotten.
local function has_element(keys, tenant, array, statuses, looks)
  for number = 2, #statuses do
    if has_element_in(keys, 't ' .. tenant .. ' ' .. statuses[number] .. ' ', array, looks) then
      return true
    end
  end
  return false
end

local function add_names(answer, keys, tenants, args, looks)
  for tenant in pairs(tenants) do
    local job = tenant .. '/' .. args[1]
    if redis.call('HGET', keys[2], job) or has_element(keys, tenant, job, args, looks) then
      answer[#answer + 1] = job
    end
  end
  return looks.left >= 0 and answer or { 'TOO_MANY' }
end

local function read_names(keys, args)
  if #args < 2 or #args[1] > ID_BYTES_MAX or not are_statuses(args, 2) then
    return refuse('an id of at most 128 bytes, and statuses of jobs, each once', string.sub(args[1] or '', 1, 50))
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local tenants = {}
  add_tenants_with_jobs(keys, tenants)
  return add_names(found(view), keys, tenants, args, { left = NAMESAKES_MAX })
end

register_read('read_names', read_names)
