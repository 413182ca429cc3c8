-- Those of the ids that are arrays of which an element is over; in the order given. One before whose elements stand more
-- namesakes than are looked at is not among them.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1... 1 to 200 ids, each as TENANT/ID
-- returns {'OK' or 'FENCED', version, cursor, at_ms, id, id, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

local ARRAYS_MAX = 200

local OVER = { 'finished', 'failed', 'cancelled' }

local function has_element_over(keys, array, looks)
  for _, status in ipairs(OVER) do
    if has_element_in(keys, 's ' .. status .. ' ', array, looks) then
      return true
    end
  end
  return false
end

local function read_arrays(keys, args)
  if #args < 1 or #args > ARRAYS_MAX then
    return refuse('1 to 200 ids', #args .. ' arguments')
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local answer, looks = found(view), { left = NAMESAKES_MAX }
  for _, id in ipairs(args) do
    if has_element_over(keys, cut(id), looks) then
      answer[#answer + 1] = id
    end
  end
  return answer
end

register_read('read_arrays', read_arrays)
