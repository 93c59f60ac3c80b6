<?php
// Calls of the PHP clients that openapi-generator makes.
declare(strict_types=1);

require '/usr/share/php/GuzzleHttp/autoload.php';
set_error_handler(function (int $level, string $message, string $file, int $line): bool {
    if ($level & (E_DEPRECATED | E_USER_DEPRECATED)) {
        return true;
    }
    throw new ErrorException($message, 0, $level, $file, $line);
});
spl_autoload_register(function (string $class): void {
    $parts = explode('\\', $class);
    if ($parts[0] === 'Petstore') {
        require __DIR__ . "/$parts[1]/lib/" . implode('/', array_slice($parts, 2)) . '.php';
    }
});

use Petstore\v1 as V1;
use Petstore\v2 as V2;

const BIG = 9007199254740993;
const SHIPPED_AT = '2026-12-01T09:30:00.000+00:00';
const A_QUARTER_LATER = '2026-12-01T09:30:00.250+00:00';
const RECEIVER = 'https://127.0.0.1:9/';
$webhook = 'wh_1'; // the identifier of the last webhook that was created
[$API, $KEY, $LIMITED, $STUB] = array_map('getenv', ['API', 'KEY', 'LIMITED', 'STUB']);

function api(string $class, string $base, string $key): object
{
    $version = explode('\\', $class)[1];
    $configuration = "Petstore\\$version\\Configuration";
    $settings = (new $configuration())->setHost("$base/$version")->setAccessToken($key);
    return new $class(new GuzzleHttp\Client(), $settings);
}

$one = api(V1\Api\OrdersApi::class, $API, $KEY);
$two = api(V2\Api\OrdersApi::class, $API, $KEY);

function call(string $version, string $base, string $name): mixed
{
    global $KEY, $webhook;
    if ($version === 'v1') {
        $orders = api(V1\Api\OrdersApi::class, $base, $KEY);
        return match ($name) {
            'listOrders' => $orders->listOrders(),
            'cancelOrder' => $orders->cancelOrder(7),
            'getPet' => api(V1\Api\PetsApi::class, $base, $KEY)->getPet(1),
        };
    }
    $orders = api(V2\Api\OrdersApi::class, $base, $KEY);
    $webhooks = api(V2\Api\WebhooksApi::class, $base, $KEY);
    if ($name === 'createWebhook') {
        $created = $webhooks->createWebhook(new V2\Model\WebhookCreation(['url' => RECEIVER]));
        same(substr($created->getSecret(), 0, 6), 'whsec_');
        $webhook = $created->getId();
        return $created;
    }
    return match ($name) {
        'listOrders' => $orders->listOrders(),
        'getOrder' => $orders->getOrder(7),
        'cancelOrder' => $orders->cancelOrder(7),
        'putOrder' => $orders->putOrder(7, new V2\Model\OrderReplacement(['pet_id' => 1, 'quantity' => 1])),
        'updateOrder' => $orders->updateOrder(7, new V2\Model\OrderCorrection(['quantity' => 2])),
        'shipOrder' => $orders->shipOrder(7),
        'completeOrder' => $orders->completeOrder(7),
        'batchOrders' => $orders->batchOrders(new V2\Model\OrderBatch(['operations' => [
            new V2\Model\BatchOperation(['operation' => 'ship', 'order_id' => 12]),
        ]])),
        'placeOrder' => $orders->placeOrder('k', new V2\Model\OrderPlacement(['pet_id' => 1, 'quantity' => 1])),
        'listChanges' => $orders->listChanges(limit: 1000),
        'getUsage' => api(V2\Api\UsageApi::class, $base, $KEY)->getUsage(),
        'listWebhooks' => $webhooks->listWebhooks(),
        'getWebhook' => $webhooks->getWebhook($webhook),
        'updateWebhook' => $webhooks->updateWebhook($webhook, new V2\Model\WebhookChange(['state' => 'paused'])),
        'pingWebhook' => $webhooks->pingWebhook($webhook),
        'rotateWebhook' => $webhooks->rotateWebhook($webhook),
        'deleteWebhook' => $webhooks->deleteWebhook($webhook),
    };
}

/** The status, the code and Retry-After of an error. */
function refused(callable $call): array
{
    try {
        $call();
    } catch (V1\ApiException | V2\ApiException $error) {
        $headers = array_change_key_case($error->getResponseHeaders());
        $code = json_decode((string) $error->getResponseBody())->code;
        return [$error->getCode(), $code, $headers['retry-after'][0] ?? null];
    }
    throw new Exception('no error');
}

function same(mixed $found, mixed $expected): void
{
    if ($found !== $expected) {
        throw new Exception(json_encode($found) . ' is not ' . json_encode($expected));
    }
}

function shown(?DateTime $time): ?string
{
    return $time?->setTimezone(new DateTimeZone('UTC'))->format(DateTimeInterface::RFC3339_EXTENDED);
}

function ids(object $page): array
{
    return array_map(fn ($order) => $order->getId(), $page->getData());
}

$cases = [
    'ship dates' => function () use ($one, $two): void {
        [$first, $second] = $one->listOrders();
        same(array_map('shown', [$first->getShipDate(), $second->getShipDate()]), [SHIPPED_AT, A_QUARTER_LATER]);
        same(shown($two->getOrder(2)->getShipDate()), A_QUARTER_LATER);
    },
    'ids above 2^53' => function () use ($one, $two): void {
        $orders = $one->listOrders();
        $order = $two->getOrder(BIG);
        same([end($orders)->getId(), $order->getId(), $order->getQuantity()], [BIG, BIG, BIG]);
    },
    'null' => function () use ($one, $two): void {
        same($one->listOrders()[2]->getPetId(), null);
        $order = new V2\Model\OrderPlacement(['pet_id' => 1, 'quantity' => 1]);
        $placed = $two->placeOrder('null', $order->setShipDate(null)->setReference(null));
        same([$placed->getShipDate(), $placed->getReference(), $placed->getStatus()], [null, null, 'pending']);
    },
    '204' => function () use ($one, $two): void {
        same([$one->cancelOrderWithHttpInfo(5)[1], $two->cancelOrderWithHttpInfo(6)[1]], [204, 204]);
    },
    '404' => function () use ($one, $two): void {
        same(refused(fn () => $one->cancelOrder(999)), [404, 'order_not_found', null]);
        same(refused(fn () => $two->getOrder(999)), [404, 'order_not_found', null]);
    },
    '409' => function () use ($one, $two): void {
        same(refused(fn () => $one->cancelOrder(4)), [409, 'order_already_shipped', null]);
        same(refused(fn () => $two->cancelOrder(4)), [409, 'order_already_shipped', null]);
        $order = new V2\Model\OrderPlacement(['pet_id' => 1, 'quantity' => 1, 'reference' => 'PO 17 + a']);
        $order->setShipDate(new DateTime(SHIPPED_AT));
        [$placed, , $headers] = $two->placeOrderWithHttpInfo('one', $order);
        same([shown($placed->getShipDate()), $placed->getReference()], [SHIPPED_AT, 'PO 17 + a']);
        same(array_change_key_case($headers)['location'][0], "orders/{$placed->getId()}");
        same(refused(fn () => $two->placeOrder('two', $order)), [409, 'reference_in_use', null]);
    },
    '429 with Retry-After' => function () use ($API, $LIMITED): void {
        $usage = api(V2\Api\UsageApi::class, $API, $LIMITED);
        $usage->getUsage();
        $list = [api(V1\Api\OrdersApi::class, $API, $LIMITED), 'listOrders'];
        foreach ([fn () => $usage->getUsage(), $list] as $call) {
            [$status, $code, $wait] = refused($call);
            same([$status, $code, (int) $wait > 0], [429, 'rate_limit_exceeded', true]);
        }
    },
    'a reference with spaces and +' => function () use ($two): void {
        same(ids($two->listOrders(reference: ['Summer order + 2'])), [1]);
        same(ids($two->listOrders(reference: ['Summer order + 2', 'B'])), [1, 2]);
    },
    'times in queries' => function () use ($two): void {
        $from = (new DateTime('2026-12-01T10:30:00.250+01:00'))->format(DateTimeInterface::RFC3339_EXTENDED);
        same(ids($two->listOrders(ship_date_from: $from, ship_date_to: '2026-12-02T09:30:00+01:00')), [2]);
    },
    'a page of three' => function () use ($two): void {
        [$found, $pages, $cursor] = [[], 0, null];
        do {
            $page = $two->listOrders(
                status: [V2\Model\StatusFilter::PENDING, V2\Model\StatusFilter::SHIPPED],
                pet_id: 77,
                sort: V2\Model\OrderSort::ID_DESCENDING,
                limit: 1,
                cursor: $cursor,
            );
            $found = [...$found, ...ids($page)];
            $cursor = $page->getNextCursor();
            $pages++;
        } while ($cursor !== null);
        same([$found, $pages >= 3], [[13, 12, 11], true]);
    },
    'one field changed' => function () use ($two): void {
        $changed = $two->updateOrder(1, new V2\Model\OrderCorrection(['quantity' => 5]));
        $found = [$changed->getQuantity(), $changed->getPetId(), shown($changed->getShipDate()), $changed->getReference()];
        same($found, [5, 1, SHIPPED_AT, 'Summer order + 2']);
        $change = (new V2\Model\OrderCorrection())->setReference(null);
        same($two->updateOrder(1, $change)->getReference(), null);
    },
    'an unknown status' => function () use ($STUB, $KEY): void {
        $orders = api(V2\Api\OrdersApi::class, "$STUB/new", $KEY);
        same([$orders->getOrder(7)->getStatus(), $orders->listOrders()->getData()[0]->getStatus()], ['returned', 'returned']);
    },
    'a new field' => function () use ($STUB, $KEY): void {
        $orders = api(V2\Api\OrdersApi::class, "$STUB/new", $KEY);
        same([$orders->getOrder(7)->getId(), count($orders->listChanges()->getData())], [7, 1]);
        same(api(V2\Api\UsageApi::class, "$STUB/new", $KEY)->getUsage()->getPlan(), 'team');
    },
    'every operation' => function () use ($API): void {
        array_map(fn ($name) => call('v1', $API, $name), ['listOrders', 'getPet']);
        $names = 'listOrders putOrder updateOrder shipOrder completeOrder batchOrders placeOrder listChanges getUsage getOrder';
        $names .= ' createWebhook listWebhooks getWebhook updateWebhook pingWebhook rotateWebhook deleteWebhook';
        array_map(fn ($name) => call('v2', $API, $name), explode(' ', $names));
    },
    'every error' => function () use ($STUB): void {
        foreach (explode(' ', getenv('ERRORS')) as $error) {
            [$version, $status, $code, $name] = explode(':', $error);
            $found = refused(fn () => call($version, "$STUB/$code", $name));
            same([$error, $found[0], $found[1]], [$error, (int) $status, $code]);
            if (in_array($status, ['429', '503'], true)) {
                same($found[2], '42');
            }
        }
    },
];

foreach ($cases as $name => $check) {
    try {
        $check();
        echo "ok $name\n";
    } catch (Throwable $error) {
        $message = str_replace("\n", ' ', substr($error->getMessage(), 0, 300));
        echo "failed $name: ", $error::class, " $message ", basename($error->getFile()), " {$error->getLine()}\n";
    }
}
