-- Counts a batch of requests in one atomic step, and returns what was counted; `domain` decides what that means.
-- The rules are the domain's (roll_window, fits, refuse, next_ban), whose numbers come with each call; property tests
-- check that the two agree.
--
-- KEYS     for each request with a key: its account's windows, its abuse record; for each without: its address's window;
--          for each probe: when Redis began to count for this store
-- ARGV[1]  the rules: a map of numbers (msgpack)
-- ARGV[2]  the requests, in the order of their keys (msgpack). With a key: {per minute, per day, began, until, level,
--          charge}; began, until and level are the latest ban that the store has, or zeros; level 0 with a start: that
--          ban was lifted; charge is 1 to charge the windows, 0 to read them.
--          Without: {1 to charge the window, 0 to read it}. A probe: {}
-- ARGV[3]  the time in Unix seconds; empty in production, where Redis's own clock is used
--
-- Returns {now, results} in the order of the requests (msgpack). With a key: {step, minute start, used, day start, used,
-- struck, began, until, level}; without: {step, start, used}; a probe: {1, microseconds}. Trailing zeros may be omitted.
-- Steps: 1 admitted, 0 refused, 2 banned, 3 banned by this request. Every key expires once nothing in it counts any more.

local rules, requests = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])
local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local second = math.floor(now)

-- What each key holds, shared by the requests of the batch that name it. MGET takes few enough keys for `unpack`, whose
-- limit is about 8,000: a batch has at most 256 requests.
local held = {}
for i, value in ipairs(redis.call('MGET', unpack(KEYS))) do
  held[KEYS[i]] = value and cmsgpack.unpack(value)
end

local changed = {}  -- keys to write back, with the time from which they no longer count
local function hold(key, value, ends)
  held[key] = value
  changed[key] = ends
end

local function roll_window(start, used, length)
  if now < start then return second, used end
  if now >= start + length then return second, 0 end
  return start, used
end

-- An abuse record is {refused at, retry at, began, until, level}. Without a ban, or once it is lifted, `began` is 0, which
-- is long ago, and what follows does not count. Its ban bridges the time until every process has read the store's ban.
-- After that only the store's ban counts, so that lifting it there is enough.
local function latest_ban(key, record, began, until_, level)
  if not record then return began, until_, level end
  local fresh = record[3] - rules.tolerance <= now and now < record[3] + rules.bridge
  if fresh and record[3] > began then return record[3], record[4], record[5] end
  if fresh and level == 0 then  -- lifted: a process that has not read that yet must not go on banning
    record[3] = 0
    hold(key, record, math.max(now, record[2]))
  end
  return began, until_, level
end

local function next_ban(began, level)
  if now - began >= rules.ban_memory then level = 0 end
  local seconds = math.min(rules.seconds * 2 ^ level, rules.max_seconds)
  return second, second + seconds, level + 1
end

-- Adds a strike; returns how many count now. They are a list of times, ascending, in a separate key: a strike costs
-- the same whatever the number that leads to a ban.
local function strike(key)
  local strikes = key .. ':strikes'
  local oldest = redis.call('LINDEX', strikes, 0)
  while oldest and tonumber(oldest) <= now - rules.strike_window do
    redis.call('LPOP', strikes)
    oldest = redis.call('LINDEX', strikes, 0)
  end
  local newest = redis.call('LINDEX', strikes, -1)
  while newest and tonumber(newest) > now do  -- the clock was set back
    redis.call('RPOP', strikes)
    newest = redis.call('LINDEX', strikes, -1)
  end
  local count = redis.call('RPUSH', strikes, string.format('%.17g', now))
  redis.call('EXPIRE', strikes, rules.strike_window + 5)
  return count
end

-- Notes a refusal; returns whether it is a strike, and the ban that it leads to.
local function refuse(key, record, retry_at, began, level)
  local refused_at, last_retry_at, held_began, held_until, held_level = unpack(record or {0, 0, 0, 0, 0})
  local struck, until_ = 0, nil
  if not (refused_at <= now and now < last_retry_at) then
    refused_at = now
  else
    retry_at = math.max(last_retry_at, retry_at)
    if now - refused_at >= rules.grace_seconds then
      struck = 1
      if strike(key) >= rules.strikes then
        redis.call('DEL', key .. ':strikes')
        began, until_, level = next_ban(began, level)
        held_began, held_until, held_level = began, until_, level
      end
    end
  end
  hold(key, {refused_at, retry_at, held_began, held_until, held_level}, math.max(retry_at, held_began + rules.bridge))
  return struck, until_ and began, until_, level
end

local function admit(account, key, per_minute, per_day, began, until_, level, charge)
  local windows, record = held[account] or {0, 0, 0, 0}, held[key]
  local minute, minute_used = roll_window(windows[1], windows[2], rules.minute)
  local day, day_used = roll_window(windows[3], windows[4], rules.day)
  local ends = math.max(minute + rules.minute, day + rules.day)
  if now < windows[1] or now < windows[3] then  -- the clock was set back: the windows stay where they were moved to
    hold(account, {minute, minute_used, day, day_used}, ends)
  end
  began, until_, level = latest_ban(key, record, began, until_, level)
  if began - rules.tolerance <= now and now < until_ then  -- without a ban, and of a lifted one, `until_` is 0
    return {2, minute, minute_used, day, day_used, 0, began, until_, level}
  end
  if charge == 0 then return {1, minute, minute_used, day, day_used} end
  if minute_used < per_minute and day_used < per_day then
    hold(account, {minute, minute_used + 1, day, day_used + 1}, ends)
    return {1, minute, minute_used + 1, day, day_used + 1}
  end
  local retry_at = 0
  if minute_used >= per_minute then retry_at = minute + rules.minute end
  if day_used >= per_day then retry_at = math.max(retry_at, day + rules.day) end
  local struck, new_began, new_until, new_level = refuse(key, held[key], retry_at, began, level)
  if new_began then
    return {3, minute, minute_used, day, day_used, struck, new_began, new_until, new_level}
  end
  return {0, minute, minute_used, day, day_used, struck}
end

local function admit_address(key, charge)
  local window = held[key] or {0, 0}
  local start, used = roll_window(window[1], window[2], rules.minute)
  if now < window[1] then hold(key, {start, used}, start + rules.minute) end  -- the same
  if charge == 0 then return {1, start, used} end
  if used >= rules.address_limit then return {0, start, used} end
  hold(key, {start, used + 1}, start + rules.minute)
  return {1, start, used + 1}
end

-- As long as any process sends probes, the time is kept: it is gone only if all counts are.
local function probe(key)
  hold(key, held[key] or math.floor(now * 1000000), now + rules.day)
  return {1, held[key]}
end

local results, next_key = {}, 1
for i, request in ipairs(requests) do
  if #request == 0 then
    results[i] = probe(KEYS[next_key])
    next_key = next_key + 1
  elseif #request == 1 then
    results[i] = admit_address(KEYS[next_key], request[1])
    next_key = next_key + 1
  else
    results[i] = admit(KEYS[next_key], KEYS[next_key + 1], unpack(request))
    next_key = next_key + 2
  end
end
for key, ends in pairs(changed) do  -- kept a little longer: nothing may depend on the exact time of expiry
  redis.call('SET', key, cmsgpack.pack(held[key]), 'EX', math.ceil(ends - now) + 5)
end
return cmsgpack.pack({now, results})
