-- Which library this is, by its own word: for users that may not see the functions' text.
-- KEYS  none
-- returns its digest

redis.register_function({
  function_name = 'fallow_digest_' .. SCHEMA,
  callback = function()
    return DIGEST
  end,
  flags = { 'no-writes' },
})
