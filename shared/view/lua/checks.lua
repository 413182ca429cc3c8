-- What the functions check before they write, and how they answer.

-- Cursors (the next offset of the log) are compared as decimal strings: a Lua number is exact only below 2^53.
local function is_cursor(text)
  return text == '0' or string.find(text or '', '^[1-9]%d*$') ~= nil
end

local function is_count(text)
  return is_cursor(text) and #text <= 9
end

local function is_before(one, other)
  if #one ~= #other then
    return #one < #other
  end
  return one < other
end

-- A wrong argument is a bug of the caller: an error before the first write, since what a script wrote stays written.
local function refuse(rule, got)
  local shown = string.gsub(string.sub(tostring(got), 1, 50), '[^\32-\126]', '?')
  return redis.error_reply('FALLOW ' .. rule .. ' (got ' .. shown .. ')')
end

-- A name as it is looked for: what is longer than any name that there is finds the same when it is cut.
local NAME_MAX = 256

local function cut(name)
  return string.sub(name, 1, NAME_MAX)
end

-- Whether the arguments from `first` on are statuses, each named once: so no caller makes a read as long as it likes.
local function are_statuses(args, first)
  local seen = {}
  for number = first, #args do
    local status = args[number]
    if not STATUSES[status] or seen[status] then
      return false
    end
    seen[status] = true
  end
  return true
end

-- `<` goes by the language in which the server was started (LC_COLLATE); the sorted sets go by bytes.
local GOES_BY_BYTES = 'Z' < 'a' and 'a-b' < 'aa'

-- Whether one string comes before another by its bytes.
local function is_before_in_bytes(one, other)
  if GOES_BY_BYTES then
    return one < other
  end
  for at = 1, math.min(#one, #other) do
    local byte, other_byte = string.byte(one, at), string.byte(other, at)
    if byte ~= other_byte then
      return byte < other_byte
    end
  end
  return #one < #other
end

-- How many rows and members the view holds. Redis knows these numbers without counting.
local function sizes(keys)
  local counts = {
    redis.call('HLEN', keys[2]), redis.call('HLEN', keys[3]), redis.call('HLEN', keys[4]),
    redis.call('ZCARD', keys[5]), redis.call('ZCARD', keys[6]),
  }
  for number, count in ipairs(counts) do
    counts[number] = string.format('%d', count)
  end
  return table.concat(counts, ' ')
end

-- The view's own numbers; ready only if it is whole and of this form. A key can go without the others, by an eviction or
-- by hand, so the sizes are compared with those that its last writer left: any reader is told before it sees a part.
local function stored(keys)
  local meta = redis.call('HMGET', keys[1], 'schema', 'ready', 'cursor', 'version', 'chain', 'at_ms', 'rebuild', 'rebuild_ms',
    'fenced', 'sizes')
  return {
    ready = meta[1] == SCHEMA and meta[2] == '1' and meta[10] == sizes(keys),
    exists = meta[2] ~= false,
    cursor = meta[3] or '',
    version = meta[4] or '',
    chain = meta[5] or '',
    at_ms = meta[6] or '',
    rebuild = meta[7] or '',
    rebuild_ms = meta[8] or '',
    fenced = meta[9] == '1',
  }
end

-- A read's answer begins with these, so that what was read and its version belong together. FENCED stands for OK where
-- the log behind the view cannot be trusted; alone, there is no whole view either.
local function found(view)
  return { view.fenced and 'FENCED' or 'OK', view.version, view.cursor, view.at_ms }
end

local function not_there(view)
  return { view.fenced and 'FENCED' or view.exists and 'NOT_READY' or 'NONE' }
end

local KEY_NAMES = { 'meta', 'jobs', 'nodes', 'tenants', 'waiting', 'index' }

-- Whether these are the keys of one cell, each in its place: a function that took one for another could do work without end.
local function are_of_one_cell(keys)
  if #keys ~= #KEY_NAMES then
    return false
  end
  local prefix = string.sub(keys[1], 1, -#KEY_NAMES[1] - 1)
  for number, name in ipairs(KEY_NAMES) do
    if keys[number] ~= prefix .. name then
      return false
    end
  end
  return true
end

local function of_one_cell(callback)
  return function(keys, args)
    if not are_of_one_cell(keys) then
      return refuse('the six keys of one cell', #keys)
    end
    return callback(keys, args)
  end
end

local function register(name, callback)
  redis.register_function('fallow_' .. name .. '_' .. SCHEMA, of_one_cell(callback))
end

-- A function that writes nothing, so that replicas and read-only users may call it.
local function register_read(name, callback)
  redis.register_function({
    function_name = 'fallow_' .. name .. '_' .. SCHEMA,
    callback = of_one_cell(callback),
    flags = { 'no-writes' },
  })
end
