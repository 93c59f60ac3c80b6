-- Counts a batch of requests in one atomic step, and returns what was counted; `domain` judges what that means.
-- The rules are the domain's (settle, fits, refuse, next_ban), whose numbers come along; property tests hold the two
-- to each other.
--
-- KEYS     for each request with a key: its account's windows, its conduct; then for each without: its address's window
-- ARGV[1]  the rules: a map of numbers (msgpack)
-- ARGV[2]  {requests with a key, requests without} (msgpack). With a key: {per minute, per day, began, until, level},
--          the last three the latest ban that the store has, or zeros; level 0 with a beginning: that ban was lifted.
--          Without: whether to charge the window, or only to look at it.
-- ARGV[3]  the moment in Unix seconds; empty in production, where Redis's own clock rules
--
-- Returns {now, {with a key: {outcome, minute start, used, day start, used, struck, began, until, level}},
-- {without: {outcome, start, used}}} (msgpack); outcome 1 admitted, 0 refused, 2 banned, 3 banned by this request.
-- Every key expires by itself once nothing in it counts any more.

local rules, batch = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])
local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local second = math.floor(now)

local held = {}  -- what each key holds, shared by the requests of the batch that name it
for i, value in ipairs(redis.call('MGET', unpack(KEYS))) do
  held[KEYS[i]] = value and cmsgpack.unpack(value)
end

local changed = {}  -- keys to write back, with the moment from which they count no more
local function hold(key, value, ends)
  held[key] = value
  changed[key] = ends
end

local function settle(start, used, length)
  if now < start then return second, used end
  if now >= start + length then return second, 0 end
  return start, used
end

-- A conduct is {refused at, retry at, began, until, level, strikes...}. Its ban bridges the time until the store's word
-- of it has reached every process: after that the store's word alone counts, so that lifting it there is enough.
local function latest_ban(key, conduct, began, until_, level)
  if not conduct or conduct[5] == 0 then return began, until_, level end
  local fresh = conduct[3] - rules.tolerance <= now and now < conduct[3] + rules.bridge
  if fresh and conduct[3] > began then return conduct[3], conduct[4], conduct[5] end
  if fresh and level == 0 then  -- lifted: a process that has not heard of it yet must not go on banning
    conduct[3], conduct[4], conduct[5] = 0, 0, 0
    hold(key, conduct, now + rules.strike_window)
  end
  return began, until_, level
end

local function next_ban(began, level)
  if level == 0 or now - began >= rules.ban_memory then level = 0 end
  local seconds = math.min(rules.ban_seconds * 2 ^ math.min(level, 32), rules.ban_max_seconds)
  return second, second + seconds, level + 1
end

-- Notes a refusal; returns whether it is a strike, and the ban that it earns.
local function refuse(key, conduct, retry_at, began, level)
  conduct = conduct or {0, 0, 0, 0, 0}
  local strikes, struck, until_ = {}, false, nil
  for i = 6, #conduct do strikes[i - 5] = conduct[i] end
  local refused_at = conduct[1]
  if not (refused_at <= now and now < conduct[2]) then
    refused_at = now
  else
    retry_at = math.max(conduct[2], retry_at)
    if now - refused_at >= rules.grace_seconds then
      local recent = {}
      for _, at in ipairs(strikes) do
        if now - rules.strike_window < at and at <= now then recent[#recent + 1] = at end
      end
      recent[#recent + 1] = now
      strikes, struck = recent, true
      if #strikes >= rules.strikes then
        strikes = {}
        began, until_, level = next_ban(began, level)
      end
    end
  end
  local ban = until_ and {began, until_, level} or {conduct[3], conduct[4], conduct[5]}
  local ends = math.max(retry_at, ban[3] > 0 and ban[1] + rules.bridge or 0)
  if #strikes > 0 then ends = math.max(ends, strikes[#strikes] + rules.strike_window) end
  hold(key, {refused_at, retry_at, ban[1], ban[2], ban[3], unpack(strikes)}, ends)
  return struck, until_ and began, until_, level
end

local function admit(account, key, per_minute, per_day, began, until_, level)
  local windows, conduct = held[account] or {0, 0, 0, 0}, held[key]
  local minute, minute_used = settle(windows[1], windows[2], rules.minute)
  local day, day_used = settle(windows[3], windows[4], rules.day)
  began, until_, level = latest_ban(key, conduct, began, until_, level)
  if level > 0 and began - rules.tolerance <= now and now < until_ then
    return {2, minute, minute_used, day, day_used, false, began, until_, level}
  end
  if minute_used < per_minute and day_used < per_day then
    hold(account, {minute, minute_used + 1, day, day_used + 1}, day + rules.day)
    return {1, minute, minute_used + 1, day, day_used + 1, false, 0, 0, 0}
  end
  local retry_at = 0
  if minute_used >= per_minute then retry_at = minute + rules.minute end
  if day_used >= per_day then retry_at = math.max(retry_at, day + rules.day) end
  local struck, new_began, new_until, new_level = refuse(key, conduct, retry_at, began, level)
  if new_began then
    return {3, minute, minute_used, day, day_used, struck, new_began, new_until, new_level}
  end
  return {0, minute, minute_used, day, day_used, struck, 0, 0, 0}
end

local function admit_address(key, charge)
  local window = held[key] or {0, 0}
  local start, used = settle(window[1], window[2], rules.minute)
  if not charge then return {1, start, used} end
  if used >= rules.address_limit then return {0, start, used} end
  hold(key, {start, used + 1}, start + rules.minute)
  return {1, start, used + 1}
end

local with_key, without = {}, {}
for i, request in ipairs(batch[1]) do
  with_key[i] = admit(KEYS[2 * i - 1], KEYS[2 * i], unpack(request))
end
for i, charge in ipairs(batch[2]) do
  without[i] = admit_address(KEYS[2 * #batch[1] + i], charge)
end
for key, ends in pairs(changed) do  -- kept a little longer: nothing may hang on the moment of expiry
  redis.call('SET', key, cmsgpack.pack(held[key]), 'EX', math.ceil(math.max(ends - now, 0)) + 5)
end
return cmsgpack.pack({now, with_key, without})
