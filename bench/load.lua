-- Loads for wrk, and a report that a program can read.
--
-- Arguments after `--`: KIND [ARGUMENT]...
--   same                  the same request each time, which wrk prepares once
--   fresh PREFIX COUNT    the same request with another X-Request-Id each time; COUNT of them are prepared
--   traced PREFIX COUNT   the same with another traceparent, as programs send it that are traced (W3C Trace Context)
--   ids FIRST METHOD [END] METHOD on PATH/id, or PATH/idEND, for successive ids, beginning with FIRST
--   batch FIRST COUNT     POST of a batch that ships COUNT successive orders, beginning with FIRST
--   keys FILE FIRST       the same request with successive API keys, one per line of FILE, beginning with line FIRST
--   place FIRST           POST of an order with a new Idempotency-Key each time
--   place FIRST reference the same, with a new reference each time
-- Each thread of wrk has its own state, so loads run with one thread.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

local kinds = {}

function kinds.same()
  return nil
end

-- Requests are prepared before the load, because forming them would slow the load generator down.
local function prepared(name, value, prefix, count)
  wrk.headers[name] = "KEY"
  local before, after = string.match(wrk.format(), "^(.*" .. string.gsub(name, "%-", "%%-") .. ": )KEY(.*)$")
  local function form(number)
    return before .. string.format(value, prefix, number) .. after
  end
  local requests = {}
  for number = 1, tonumber(count) do
    requests[number] = form(number)
  end
  next_id = 0
  return function()
    next_id = next_id + 1
    return requests[next_id] or form(next_id)
  end
end

function kinds.fresh(prefix, count)
  return prepared("X-Request-Id", "%s%016x", prefix, count)
end

function kinds.traced(prefix, count)
  return prepared("traceparent", "00-%s%016x-00f067aa0ba902b7-01", prefix, count)
end

function kinds.ids(first, method, ending)
  next_id = tonumber(first) - 1
  local before = method .. " " .. wrk.path .. "/"
  local after = string.match(wrk.format("GET", "/"), "^GET / (.*)$")
  return function()
    next_id = next_id + 1
    return before .. string.format("%d", next_id) .. (ending or "") .. " " .. after
  end
end

function kinds.batch(first, count)
  next_id = tonumber(first) - 1
  wrk.headers["Content-Type"] = "application/json"
  return function()
    local operations = {}
    for number = 1, tonumber(count) do
      operations[number] = string.format('{"operation":"ship","orderId":%d}', next_id + number)
    end
    next_id = next_id + tonumber(count)
    return wrk.format("POST", nil, nil, '{"operations":[' .. table.concat(operations, ",") .. "]}")
  end
end

function kinds.keys(file, first)
  local requests = {}
  for key in io.lines(file) do
    wrk.headers["Authorization"] = "Bearer " .. key
    table.insert(requests, wrk.format())
  end
  next_id = tonumber(first) - 1
  return function()
    next_id = next_id + 1
    return requests[(next_id - 1) % #requests + 1]
  end
end

function kinds.place(first, field)
  next_id = tonumber(first) - 1
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Idempotency-Key"] = "KEY"
  wrk.body = '{"petId":7,"quantity":1,"shipDate":"2026-12-01T00:00:00Z"}'
  if field then  -- of the length that the numbers have, so that Content-Length is right
    wrk.body = '{"petId":7,"quantity":1,"reference":"REFERENCE","shipDate":"2026-12-01T00:00:00Z"}'
  end
  local before, after = string.match(wrk.format(), "^(.*Idempotency%-Key: )KEY(.*)$")
  return function()
    next_id = next_id + 1
    local rest = field and string.gsub(after, "REFERENCE", string.format("%09d", next_id)) or after
    return before .. "bench-" .. (field or "") .. string.format("%d", next_id) .. rest
  end
end

function init(arguments)
  request = kinds[arguments[1]](arguments[2], arguments[3], arguments[4])
end

function done(summary, latency)
  local last = threads[1]:get("next_id") or 0
  print(string.format(
    'RESULT {"requests":%d,"microseconds":%d,"refused":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,"p50":%d,"p99":%d,"last":%d}',
    summary.requests, summary.duration, summary.errors.status, summary.errors.connect, summary.errors.read,
    summary.errors.write, summary.errors.timeout, latency:percentile(50), latency:percentile(99), last))
end
