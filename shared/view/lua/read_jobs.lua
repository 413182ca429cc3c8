-- A page of jobs in the order of their ids.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 tenant, or empty for all   2 id behind which the page begins, or empty   3 the most jobs, 1 to 10000
--       4... statuses, at least one
-- returns {'OK' or 'FENCED', version, cursor, at_ms, row, position, row, position, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

local function read_jobs(keys, args)
  local limit = is_count(args[3]) and tonumber(args[3])
  if not limit or limit < 1 or limit > 10000 or #args < 4 then
    return refuse('1 to 10000 jobs of at least one status', args[3])
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local ids = {}
  for number = 4, #args do
    local prefix = args[1] == '' and 's ' .. args[number] .. ' ' or 't ' .. args[1] .. ' ' .. args[number] .. ' '
    -- An id is ASCII, so every one of them sorts before the byte 255.
    local some = redis.call('ZRANGEBYLEX', keys[6], '(' .. prefix .. args[2], '(' .. prefix .. '\255', 'LIMIT', 0, limit)
    for _, member in ipairs(some) do
      ids[#ids + 1] = string.sub(member, #prefix + 1)
    end
  end
  table.sort(ids)
  local page = {}
  for number = 1, math.min(limit, #ids) do
    page[number] = ids[number]
  end
  return add_jobs(found(view), keys, page)
end

register_read('read_jobs', read_jobs)
