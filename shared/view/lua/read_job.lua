-- One job.
-- KEYS  meta jobs nodes tenants waiting index
-- ARGV  1 job id
-- returns {'OK' or 'FENCED', version, cursor, at_ms [, row, position in its queue from 0 or -1]} | {'NOT_READY'} | {'NONE'} | {'FENCED'}

local function read_job(keys, args)
  if #args ~= 1 then
    return refuse('one job', #args)
  end
  local view = stored(keys)
  if not view.ready then
    return not_there(view)
  end
  return add_jobs(found(view), keys, { args[1] })
end

register_read('read_job', read_job)
