-- Every node, in no order.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  none
-- returns {'OK' or 'FENCED', version, cursor, at_ms, row, row, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

local function read_nodes(keys, args)
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local answer = found(view)
  for _, row in ipairs(redis.call('HVALS', keys[3])) do
    answer[#answer + 1] = row
  end
  return answer
end

register_read('read_nodes', read_nodes)
