-- Tells readers that the log behind the view cannot be trusted, or that it can again. What the view shows stays.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 '1': the cell is fenced   '0': it is not
-- returns {'OK'}

local function fence(keys, args)
  if args[1] == '1' then
    redis.call('HSET', keys[1], 'fenced', '1')
  elseif args[1] == '0' then
    redis.call('HDEL', keys[1], 'fenced')
  else
    return refuse('fenced is 1 or 0', args[1])
  end
  return { 'OK' }
end

register('fence', fence)
