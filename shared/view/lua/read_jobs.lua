-- A page of jobs in the order of their ids.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 tenant, or empty for all   2 id behind which the page begins, or empty   3 the most jobs, 1 to 10000
--       4... statuses, at least one, each once
-- returns {'OK' or 'FENCED', version, cursor, at_ms, row, position, row, position, ...} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

-- So many ids of one status are asked for at once: what is taken for a page is little more than the page, also where many
-- statuses share it.
local IDS_AT_ONCE = 500

-- The jobs of one status behind an id, in the order of their ids.
local function line_of(prefix, after, limit)
  return { prefix = prefix, after = after, most = math.min(limit, IDS_AT_ONCE), members = {}, at = 0 }
end

-- Goes on to the next job; `head` is its id, nil where there is none.
local function advance(keys, line)
  line.at = line.at + 1
  if line.at > #line.members and not line.is_over then
    -- An id is ASCII, so every one of them sorts before the byte 255.
    local first, last = '(' .. line.prefix .. line.after, '(' .. line.prefix .. '\255'
    line.members, line.at = redis.call('ZRANGEBYLEX', keys[6], first, last, 'LIMIT', 0, line.most), 1
    line.is_over = #line.members < line.most
  end
  local member = line.members[line.at]
  line.head = member and string.sub(member, #line.prefix + 1)
  line.after = line.head
end

-- Puts a line among others, which stand in the order of their heads, from this place on. One that is over goes.
local function put_in_order(lines, line, from)
  if not line.head then
    table.remove(lines, from)
    return
  end
  lines[from] = line
  while lines[from + 1] and is_before_in_bytes(lines[from + 1].head, line.head) do
    lines[from], lines[from + 1] = lines[from + 1], line
    from = from + 1
  end
end

local function lines_in_order(keys, args, limit)
  local tenant, after, lines = cut(args[1]), cut(args[2]), {}
  for number = 4, #args do
    local prefix = tenant == '' and 's ' .. args[number] .. ' ' or 't ' .. tenant .. ' ' .. args[number] .. ' '
    local line = line_of(prefix, after, limit)
    advance(keys, line)
    if line.head then
      table.insert(lines, 1, line)
      put_in_order(lines, line, 1)
    end
  end
  return lines
end

local function read_jobs(keys, args)
  local limit = is_count(args[3]) and tonumber(args[3])
  if not limit or limit < 1 or limit > 10000 or #args < 4 then
    return refuse('1 to 10000 jobs of at least one status', args[3])
  end
  if not are_statuses(args, 4) then
    return refuse('statuses of jobs, each once', #args - 3 .. ' arguments')
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  local page, lines = {}, lines_in_order(keys, args, limit)
  while #page < limit and lines[1] do
    local line = lines[1]
    page[#page + 1] = line.head
    advance(keys, line)
    put_in_order(lines, line, 1)
  end
  return add_jobs(found(view), keys, page)
end

register_read('read_jobs', read_jobs)
