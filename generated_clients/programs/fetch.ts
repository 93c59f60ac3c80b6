// Calls of the TypeScript clients that openapi-generator makes (typescript-fetch).
import { A_QUARTER_LATER, API, KEY, LIMITED, OPERATIONS, RECEIVER, REFERENCE, SHIPPED_AT, STUB, everyError, run, same } from "./cases";
import type { Refusal } from "./cases";
import * as v1 from "./v1";
import * as v2 from "./v2";

function orders1(base = API, key = KEY): v1.OrdersApi {
  return new v1.OrdersApi(new v1.Configuration({ basePath: `${base}/v1`, accessToken: key }));
}

function configuration(base = API, key = KEY): v2.Configuration {
  return new v2.Configuration({ basePath: `${base}/v2`, accessToken: key });
}

async function refused(call: Promise<unknown>): Promise<Refusal> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof v1.ResponseError || error instanceof v2.ResponseError)) throw error;
    const { status, headers } = error.response;
    return { status, code: (await error.response.json()).code, retryAfter: headers.get("Retry-After") };
  }
  throw new Error("no error");
}

const V1 = orders1();
const V2 = new v2.OrdersApi(configuration());

let webhookId = "wh_1"; // of the last webhook that was created

async function createWebhook(webhooks: v2.WebhooksApi): Promise<void> {
  const created = await webhooks.createWebhook({ webhookCreation: { url: RECEIVER } });
  same(created.secret?.startsWith("whsec_"), true);
  webhookId = created.id;
}

function call(version: string, base: string, name: string): Promise<unknown> {
  if (version === "v1") {
    const pets = new v1.PetsApi(new v1.Configuration({ basePath: `${base}/v1`, accessToken: KEY }));
    const calls: Record<string, () => Promise<unknown>> = {
      listOrders: () => orders1(base).listOrders(),
      cancelOrder: () => orders1(base).cancelOrder({ orderId: 7 }),
      getPet: () => pets.getPet({ petId: 1 }),
    };
    return calls[name]();
  }
  const orders = new v2.OrdersApi(configuration(base));
  const webhooks = new v2.WebhooksApi(configuration(base));
  const calls: Record<string, () => Promise<unknown>> = {
    listOrders: () => orders.listOrders(),
    getOrder: () => orders.getOrder({ orderId: 7 }),
    cancelOrder: () => orders.cancelOrder({ orderId: 7 }),
    putOrder: () => orders.putOrder({ orderId: 7, orderReplacement: { petId: 1, quantity: 1 } }),
    updateOrder: () => orders.updateOrder({ orderId: 7, orderCorrection: { quantity: 2 } }),
    shipOrder: () => orders.shipOrder({ orderId: 7 }),
    completeOrder: () => orders.completeOrder({ orderId: 7 }),
    batchOrders: () => orders.batchOrders({ orderBatch: { operations: [{ operation: "ship", orderId: 12 }] } }),
    placeOrder: () => orders.placeOrder({ idempotencyKey: "k", orderPlacement: { petId: 1, quantity: 1 } }),
    listChanges: () => orders.listChanges({ limit: 1000 }),
    getUsage: () => new v2.UsageApi(configuration(base)).getUsage(),
    createWebhook: () => createWebhook(webhooks),
    listWebhooks: () => webhooks.listWebhooks(),
    getWebhook: () => webhooks.getWebhook({ webhookId }),
    updateWebhook: () => webhooks.updateWebhook({ webhookId, webhookChange: { state: "paused" } }),
    pingWebhook: () => webhooks.pingWebhook({ webhookId }),
    rotateWebhook: () => webhooks.rotateWebhook({ webhookId }),
    deleteWebhook: () => webhooks.deleteWebhook({ webhookId }),
  };
  return calls[name]();
}

void run({
  "ship dates": async () => {
    const [first, second] = await V1.listOrders();
    same([first.shipDate, second.shipDate], [SHIPPED_AT, A_QUARTER_LATER]);
    same((await V2.getOrder({ orderId: 2 })).shipDate, A_QUARTER_LATER);
  },
  "ids above 2^53": async () => {
    const last = (await V1.listOrders()).at(-1);
    same(Number.isSafeInteger(last?.id), false);
    return "rounded";
  },
  "null": async () => {
    same((await V1.listOrders())[2].petId, undefined);
    const orderPlacement = { petId: 1, quantity: 1, shipDate: null, reference: null };
    const placed = await V2.placeOrder({ idempotencyKey: "null", orderPlacement });
    same([placed.shipDate, placed.reference, placed.status], [undefined, undefined, "pending"]);
  },
  "204": async () => {
    same(await V1.cancelOrder({ orderId: 5 }), undefined);
    same(await V2.cancelOrder({ orderId: 6 }), undefined);
  },
  "404": async () => {
    const expected = { status: 404, code: "order_not_found", retryAfter: null };
    same(await refused(V1.cancelOrder({ orderId: 999 })), expected);
    same(await refused(V2.getOrder({ orderId: 999 })), expected);
  },
  "409": async () => {
    const expected = { status: 409, code: "order_already_shipped", retryAfter: null };
    same(await refused(V1.cancelOrder({ orderId: 4 })), expected);
    same(await refused(V2.cancelOrder({ orderId: 4 })), expected);
    const orderPlacement = { petId: 1, quantity: 1, shipDate: new Date(SHIPPED_AT), reference: "PO 17 + a" };
    const placed = await V2.placeOrderRaw({ idempotencyKey: "one", orderPlacement });
    const order = await placed.value();
    same([order.shipDate, order.reference], [SHIPPED_AT, "PO 17 + a"]);
    same(placed.raw.headers.get("Location"), `orders/${order.id}`);
    const again = await refused(V2.placeOrder({ idempotencyKey: "two", orderPlacement }));
    same(again.code, "reference_in_use");
  },
  "429 with Retry-After": async () => {
    const usage = new v2.UsageApi(configuration(API, LIMITED));
    await usage.getUsage();
    for (const found of [await refused(usage.getUsage()), await refused(orders1(API, LIMITED).listOrders())]) {
      same([found.status, found.code, Number(found.retryAfter) > 0], [429, "rate_limit_exceeded", true]);
    }
  },
  "a reference with spaces and +": async () => {
    same((await V2.listOrders({ reference: [REFERENCE] })).data.map((order) => order.id), [1]);
    same((await V2.listOrders({ reference: [REFERENCE, "B"] })).data.map((order) => order.id), [1, 2]);
  },
  "times in queries": async () => {
    const range = { shipDateFrom: new Date(A_QUARTER_LATER), shipDateTo: new Date("2026-12-02T09:30:00+01:00") };
    same((await V2.listOrders(range)).data.map((order) => order.id), [2]);
  },
  "a page of three": async () => {
    const found: number[] = [];
    let cursor: string | undefined, pages = 0;
    do {
      const filters = { petId: 77, status: [v2.StatusFilter.Pending, v2.StatusFilter.Shipped] };
      const page = await V2.listOrders({ ...filters, sort: v2.OrderSort.ID_DESCENDING, limit: 1, cursor });
      found.push(...page.data.map((order) => order.id));
      cursor = page.nextCursor;
      pages++;
    } while (cursor);
    same([found, pages >= 3], [[13, 12, 11], true]);
  },
  "one field changed": async () => {
    const changed = await V2.updateOrder({ orderId: 1, orderCorrection: { quantity: 5 } });
    same([changed.quantity, changed.petId, changed.shipDate, changed.reference], [5, 1, SHIPPED_AT, REFERENCE]);
    same((await V2.updateOrder({ orderId: 1, orderCorrection: { reference: null } })).reference, undefined);
  },
  "an unknown status": async () => {
    const orders = new v2.OrdersApi(configuration(`${STUB}/new`));
    same((await orders.getOrder({ orderId: 7 })).status, "returned");
    same((await orders.listOrders()).data[0].status, "returned");
  },
  "a new field": async () => {
    const orders = new v2.OrdersApi(configuration(`${STUB}/new`));
    same((await orders.getOrder({ orderId: 7 }))["giftWrap"], { colour: "red" });
    same((await new v2.UsageApi(configuration(`${STUB}/new`)).getUsage()).plan, "team");
    same((await orders.listChanges()).data.length, 1);
  },
  "every operation": async () => {
    for (const name of ["listOrders", "getPet"]) await call("v1", API, name);
    for (const name of OPERATIONS) await call("v2", API, name);
  },
  "every error": () => everyError((version, base, name) => refused(call(version, base, name))),
});
