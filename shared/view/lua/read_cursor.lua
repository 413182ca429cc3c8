-- Where the view stands.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  none
-- returns {'OK' or 'FENCED', version, cursor, at_ms, chain} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

local function read_cursor(keys, args)
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local answer = found(view)
  answer[5] = view.chain
  return answer
end

register_read('read_cursor', read_cursor)
