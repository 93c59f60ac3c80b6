# Calls of the Ruby clients that openapi-generator makes.
require 'petstore_v1'
require 'petstore_v2'
require 'json'
require 'time'
require 'uri'

API, KEY, LIMITED, STUB = ENV.values_at('API', 'KEY', 'LIMITED', 'STUB')
BIG = 9_007_199_254_740_993
SHIPPED_AT = Time.utc(2026, 12, 1, 9, 30)
A_QUARTER_LATER = SHIPPED_AT + Rational(1, 4)
RECEIVER = 'https://127.0.0.1:9/'.freeze
WEBHOOK = ['wh_1'] # the identifier of the last webhook that was created

def client(package, version, base = API, key = KEY)
  address = URI(base)
  configuration = package::Configuration.new
  configuration.scheme = address.scheme
  configuration.host = "#{address.host}:#{address.port}"
  configuration.base_path = "#{address.path}/#{version}"
  configuration.access_token = key
  configuration.params_encoding = :multi # otherwise status=a&status=b is sent as status[0]=a&status[1]=b
  package::ApiClient.new(configuration)
end

def first(base = API, key = KEY)
  PetstoreV1::OrdersApi.new(client(PetstoreV1, 'v1', base, key))
end

def second(base = API, key = KEY)
  PetstoreV2::OrdersApi.new(client(PetstoreV2, 'v2', base, key))
end

def usage(base = API, key = KEY)
  PetstoreV2::UsageApi.new(client(PetstoreV2, 'v2', base, key))
end

def webhooks(base)
  PetstoreV2::WebhooksApi.new(client(PetstoreV2, 'v2', base))
end

def call(version, base, name)
  if version == 'v1'
    case name
    when 'listOrders' then first(base).list_orders
    when 'cancelOrder' then first(base).cancel_order(7)
    when 'getPet' then PetstoreV1::PetsApi.new(client(PetstoreV1, 'v1', base)).get_pet(1)
    else raise "no operation #{name}"
    end
  else
    case name
    when 'listOrders' then second(base).list_orders
    when 'getOrder' then second(base).get_order(7)
    when 'cancelOrder' then second(base).cancel_order(7)
    when 'putOrder' then second(base).put_order(7, PetstoreV2::OrderReplacement.new(pet_id: 1, quantity: 1))
    when 'updateOrder' then second(base).update_order(7, PetstoreV2::OrderCorrection.new(quantity: 2))
    when 'shipOrder' then second(base).ship_order(7)
    when 'completeOrder' then second(base).complete_order(7)
    when 'batchOrders'
      operation = PetstoreV2::BatchOperation.new(operation: 'ship', order_id: 12)
      second(base).batch_orders(PetstoreV2::OrderBatch.new(operations: [operation]))
    when 'placeOrder' then second(base).place_order('k', placement)
    when 'listChanges' then second(base).list_changes(limit: 1000)
    when 'getUsage' then usage(base).get_usage
    when 'createWebhook'
      created = webhooks(base).create_webhook(PetstoreV2::WebhookCreation.new(url: RECEIVER))
      raise 'no secret' unless created.secret.start_with?('whsec_')

      WEBHOOK.replace([created.id])
    when 'listWebhooks' then webhooks(base).list_webhooks
    when 'getWebhook' then webhooks(base).get_webhook(*WEBHOOK)
    when 'updateWebhook' then webhooks(base).update_webhook(*WEBHOOK, PetstoreV2::WebhookChange.new(state: 'paused'))
    when 'pingWebhook' then webhooks(base).ping_webhook(*WEBHOOK)
    when 'rotateWebhook' then webhooks(base).rotate_webhook(*WEBHOOK)
    when 'deleteWebhook' then webhooks(base).delete_webhook(*WEBHOOK)
    else raise "no operation #{name}"
    end
  end
end

def placement(**more)
  PetstoreV2::OrderPlacement.new(pet_id: 1, quantity: 1, **more)
end

# The status, the code and Retry-After of an error.
def refused
  yield
rescue PetstoreV1::ApiError, PetstoreV2::ApiError => e
  headers = e.response_headers.to_h.transform_keys(&:downcase)
  [e.code, JSON.parse(e.response_body)['code'], headers['retry-after']]
else
  raise 'no error'
end

def same(found, expected)
  raise "#{found.inspect} is not #{expected.inspect}" unless found == expected
end

def ids(page)
  page.data.map(&:id)
end

CASES = {
  'ship dates' => lambda {
    orders = first.list_orders
    same([orders[0].ship_date, orders[1].ship_date], [SHIPPED_AT, A_QUARTER_LATER])
    same(second.get_order(2).ship_date, A_QUARTER_LATER)
  },
  'ids above 2^53' => lambda {
    order = second.get_order(BIG)
    same([first.list_orders.last.id, order.id, order.quantity], [BIG, BIG, BIG])
  },
  'null' => lambda {
    same(first.list_orders[2].pet_id, nil)
    placed = second.place_order('null', placement(ship_date: nil, reference: nil))
    same([placed.ship_date, placed.reference, placed.status], [nil, nil, 'pending'])
  },
  '204' => lambda {
    same([first.cancel_order_with_http_info(5)[1], second.cancel_order_with_http_info(6)[1]], [204, 204])
  },
  '404' => lambda {
    same(refused { first.cancel_order(999) }, [404, 'order_not_found', nil])
    same(refused { second.get_order(999) }, [404, 'order_not_found', nil])
  },
  '409' => lambda {
    same(refused { first.cancel_order(4) }, [409, 'order_already_shipped', nil])
    same(refused { second.cancel_order(4) }, [409, 'order_already_shipped', nil])
    order = placement(ship_date: SHIPPED_AT.iso8601, reference: 'PO 17 + a')
    placed, _status, headers = second.place_order_with_http_info('one', order)
    same([placed.ship_date, placed.reference], [SHIPPED_AT, 'PO 17 + a'])
    same(headers.to_h.transform_keys(&:downcase)['location'], "orders/#{placed.id}")
    same(refused { second.place_order('two', order) }, [409, 'reference_in_use', nil])
  },
  '429 with Retry-After' => lambda {
    usage(API, LIMITED).get_usage
    [-> { usage(API, LIMITED).get_usage }, -> { first(API, LIMITED).list_orders }].each do |again|
      status, code, wait = refused(&again)
      same([status, code, wait.to_i.positive?], [429, 'rate_limit_exceeded', true])
    end
  },
  'a reference with spaces and +' => lambda {
    same(ids(second.list_orders(reference: ['Summer order + 2'])), [1])
    same(ids(second.list_orders(reference: ['Summer order + 2', 'B'])), [1, 2])
  },
  'times in queries' => lambda {
    range = { ship_date_from: '2026-12-01T10:30:00.250+01:00', ship_date_to: (SHIPPED_AT + 86_400).iso8601 }
    same(ids(second.list_orders(range)), [2])
  },
  'a page of three' => lambda {
    found = []
    pages = 0
    cursor = nil
    loop do
      options = { pet_id: 77, status: %w[pending shipped], sort: PetstoreV2::OrderSort::ID_DESCENDING, limit: 1 }
      options[:cursor] = cursor if cursor
      page = second.list_orders(options)
      found += ids(page)
      pages += 1
      break unless (cursor = page.next_cursor)
    end
    same([found, pages >= 3], [[13, 12, 11], true])
  },
  'one field changed' => lambda {
    changed = second.update_order(1, PetstoreV2::OrderCorrection.new(quantity: 5))
    found = [changed.quantity, changed.pet_id, changed.ship_date, changed.reference]
    same(found, [5, 1, SHIPPED_AT, 'Summer order + 2'])
    same(second.update_order(1, PetstoreV2::OrderCorrection.new(reference: nil)).reference, nil)
  },
  'an unknown status' => lambda {
    orders = second("#{STUB}/new")
    same([orders.get_order(7).status, orders.list_orders.data[0].status], %w[returned returned])
  },
  'a new field' => lambda {
    orders = second("#{STUB}/new")
    same([orders.get_order(7).id, orders.list_changes.data.length], [7, 1])
    same(usage("#{STUB}/new").get_usage.plan, 'team')
  },
  'every operation' => lambda {
    %w[listOrders getPet].each { |name| call('v1', API, name) }
    %w[listOrders putOrder updateOrder shipOrder completeOrder batchOrders placeOrder listChanges getUsage getOrder].each { |name| call('v2', API, name) }
    %w[createWebhook listWebhooks getWebhook updateWebhook pingWebhook rotateWebhook deleteWebhook].each { |name| call('v2', API, name) }
  },
  'every error' => lambda {
    ENV['ERRORS'].split.each do |error|
      version, status, code, name = error.split(':')
      found = refused { call(version, "#{STUB}/#{code}", name) }
      same([error, *found[0, 2]], [error, status.to_i, code])
      same([error, found[2]], [error, '42']) if %w[429 503].include?(status)
    end
  }
}.freeze

CASES.each do |name, check|
  check.call
  puts "ok #{name}"
rescue StandardError => e
  puts "failed #{name}: #{e.class} #{e.message.tr("\n", ' ')[0, 300]}"
end
