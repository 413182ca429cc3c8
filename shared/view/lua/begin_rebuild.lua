-- Forgets the view and begins to build another. Until it is finished, readers are told that there is none.
-- UNLINK takes a key away at once and frees it beside, so this step is short whatever the view held.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 id of this rebuild: OWNER/WHICH, new each time   2 cursor that the caller saw in a ready view, empty if it saw none
--       3 wall time now, ms    4 how long a rebuild may rest before another may take over, ms
-- returns {'OK'} | {'DUP', cursor} the view is ready, and not the one that the caller saw
--         | {'BUSY', id} another owner's rebuild is under way

local function owner(id)
  return string.match(id, '^(.*)/') or id
end

local function begin_rebuild(keys, args)
  if (args[1] or '') == '' then
    return refuse('a rebuild has an id', args[1])
  end
  if args[2] ~= '' and not is_cursor(args[2]) then
    return refuse('the cursor that was seen is a number or empty', args[2])
  end
  if not is_cursor(args[3]) or not is_cursor(args[4]) then
    return refuse('times are numbers', tostring(args[3]) .. ', ' .. tostring(args[4]))
  end
  local view = stored(keys)
  if view.ready and view.cursor ~= args[2] then
    return { 'DUP', view.cursor }
  end
  if view.rebuild ~= '' and owner(view.rebuild) ~= owner(args[1]) then
    -- The clocks of two machines differ, in either direction.
    if math.abs(tonumber(args[3]) - tonumber(view.rebuild_ms)) < tonumber(args[4]) then
      return { 'BUSY', view.rebuild }
    end
  end
  redis.call('UNLINK', keys[2], keys[3], keys[4], keys[5], keys[6])
  redis.call('HDEL', keys[1], 'cursor', 'version', 'chain', 'at_ms', 'pools', 'fenced', 'sizes')
  redis.call('HSET', keys[1], 'schema', SCHEMA, 'ready', '0', 'rebuild', args[1], 'rebuild_ms', args[3])
  return { 'OK' }
end

register('begin_rebuild', begin_rebuild)
