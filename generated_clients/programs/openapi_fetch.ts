// Calls with openapi-fetch and the types that openapi-typescript makes of the contracts.
import createClient from "openapi-fetch";
import { A_QUARTER_LATER, API, KEY, LIMITED, OPERATIONS, RECEIVER, REFERENCE, SHIPPED_AT, STUB, everyError, run, same } from "./cases.js";
import type { Refusal } from "./cases.js";
import type { paths as Paths1 } from "./v1.js";
import type { paths as Paths2 } from "./v2.js";

function first(base = API, key = KEY) {
  return createClient<Paths1>({ baseUrl: `${base}/v1`, headers: { Authorization: `Bearer ${key}` } });
}

function second(base = API, key = KEY) {
  return createClient<Paths2>({ baseUrl: `${base}/v2`, headers: { Authorization: `Bearer ${key}` } });
}

type Result = { error?: { code: string }; response: Response };

async function refused(call: Promise<Result>): Promise<Refusal> {
  const { error, response } = await call;
  if (!error) throw new Error("no error");
  return { status: response.status, code: error.code, retryAfter: response.headers.get("Retry-After") };
}

const V1 = first();
const V2 = second();
const order = (orderId: number) => ({ params: { path: { orderId } } });

let webhookId = "wh_1"; // of the last webhook that was created

async function createWebhook(client: ReturnType<typeof second>): Promise<Result> {
  const created = await client.POST("/webhooks", { body: { url: RECEIVER } });
  if (created.data) same(created.data.secret?.startsWith("whsec_"), true);
  webhookId = created.data?.id ?? webhookId;
  return created;
}

function call(version: string, base: string, name: string): Promise<Result> {
  if (version === "v1") {
    const client = first(base);
    const calls: Record<string, () => Promise<Result>> = {
      listOrders: () => client.GET("/store/orders"),
      cancelOrder: () => client.DELETE("/store/orders/{orderId}", order(7)),
      getPet: () => client.GET("/pets/{petId}", { params: { path: { petId: 1 } } }),
    };
    return calls[name]();
  }
  const client = second(base);
  const webhook = { params: { path: { webhookId } } };
  const placement = { params: { header: { "Idempotency-Key": "k" } }, body: { petId: 1, quantity: 1 } };
  const calls: Record<string, () => Promise<Result>> = {
    listOrders: () => client.GET("/store/orders"),
    getOrder: () => client.GET("/store/orders/{orderId}", order(7)),
    cancelOrder: () => client.DELETE("/store/orders/{orderId}", order(7)),
    putOrder: () => client.PUT("/store/orders/{orderId}", { ...order(7), body: { petId: 1, quantity: 1 } }),
    updateOrder: () => client.PATCH("/store/orders/{orderId}", { ...order(7), body: { quantity: 2 } }),
    shipOrder: () => client.POST("/store/orders/{orderId}/ship", order(7)),
    completeOrder: () => client.POST("/store/orders/{orderId}/complete", order(7)),
    batchOrders: () => client.POST("/store/orders/batch", { body: { operations: [{ operation: "ship", orderId: 12 }] } }),
    placeOrder: () => client.POST("/store/orders", placement),
    listChanges: () => client.GET("/store/changes", { params: { query: { limit: 1000 } } }),
    getUsage: () => client.GET("/usage"),
    createWebhook: () => createWebhook(client),
    listWebhooks: () => client.GET("/webhooks"),
    getWebhook: () => client.GET("/webhooks/{webhookId}", webhook),
    updateWebhook: () => client.PATCH("/webhooks/{webhookId}", { ...webhook, body: { state: "paused" } }),
    pingWebhook: () => client.POST("/webhooks/{webhookId}/ping", webhook),
    rotateWebhook: () => client.POST("/webhooks/{webhookId}/rotate", webhook),
    deleteWebhook: () => client.DELETE("/webhooks/{webhookId}", webhook),
  };
  return calls[name]();
}

async function listed(query: NonNullable<Paths2["/store/orders"]["get"]["parameters"]["query"]>) {
  const { data } = await V2.GET("/store/orders", { params: { query } });
  if (!data) throw new Error("no page");
  return { ids: data.data.map((order) => order.id), cursor: data.nextCursor };
}

void run({
  "ship dates": async () => {
    const { data } = await V1.GET("/store/orders");
    same(data?.slice(0, 2).map((order) => order.shipDate), ["2026-12-01T09:30:00Z", "2026-12-01T09:30:00.250000Z"]);
    same((await V2.GET("/store/orders/{orderId}", order(2))).data?.shipDate, "2026-12-01T09:30:00.250000Z");
  },
  "ids above 2^53": async () => {
    same(Number.isSafeInteger((await V1.GET("/store/orders")).data?.at(-1)?.id), false);
    return "rounded";
  },
  "null": async () => {
    same((await V1.GET("/store/orders")).data?.[2].petId, undefined);
    const body = { petId: 1, quantity: 1, shipDate: null, reference: null };
    const { data } = await V2.POST("/store/orders", { params: { header: { "Idempotency-Key": "null" } }, body });
    same([data?.shipDate, data?.reference, data?.status], [undefined, undefined, "pending"]);
  },
  "204": async () => {
    same((await V1.DELETE("/store/orders/{orderId}", order(5))).response.status, 204);
    same((await V2.DELETE("/store/orders/{orderId}", order(6))).response.status, 204);
  },
  "404": async () => {
    const expected = { status: 404, code: "order_not_found", retryAfter: null };
    same(await refused(V1.DELETE("/store/orders/{orderId}", order(999))), expected);
    same(await refused(V2.GET("/store/orders/{orderId}", order(999))), expected);
  },
  "409": async () => {
    const expected = { status: 409, code: "order_already_shipped", retryAfter: null };
    same(await refused(V1.DELETE("/store/orders/{orderId}", order(4))), expected);
    same(await refused(V2.DELETE("/store/orders/{orderId}", order(4))), expected);
    const body = { petId: 1, quantity: 1, shipDate: SHIPPED_AT, reference: "PO 17 + a" };
    const placed = await V2.POST("/store/orders", { params: { header: { "Idempotency-Key": "one" } }, body });
    same([placed.data?.shipDate, placed.data?.reference], ["2026-12-01T09:30:00Z", "PO 17 + a"]);
    same(placed.response.headers.get("Location"), `orders/${placed.data?.id}`);
    const again = V2.POST("/store/orders", { params: { header: { "Idempotency-Key": "two" } }, body });
    same((await refused(again)).code, "reference_in_use");
  },
  "429 with Retry-After": async () => {
    await second(API, LIMITED).GET("/usage");
    const calls = [second(API, LIMITED).GET("/usage"), first(API, LIMITED).GET("/store/orders")];
    for (const found of await Promise.all(calls.map(refused))) {
      same([found.status, found.code, Number(found.retryAfter) > 0], [429, "rate_limit_exceeded", true]);
    }
  },
  "a reference with spaces and +": async () => {
    same((await listed({ reference: [REFERENCE] })).ids, [1]);
    same((await listed({ reference: [REFERENCE, "B"] })).ids, [1, 2]);
  },
  "times in queries": async () => {
    same((await listed({ shipDateFrom: A_QUARTER_LATER, shipDateTo: "2026-12-02T09:30:00+01:00" })).ids, [2]);
  },
  "a page of three": async () => {
    const found: number[] = [];
    let cursor: string | undefined, pages = 0;
    do {
      const page = await listed({ petId: 77, status: ["pending", "shipped"], sort: "-id", limit: 1, cursor });
      found.push(...page.ids);
      cursor = page.cursor;
      pages++;
    } while (cursor);
    same([found, pages >= 3], [[13, 12, 11], true]);
  },
  "one field changed": async () => {
    const { data } = await V2.PATCH("/store/orders/{orderId}", { ...order(1), body: { quantity: 5 } });
    same([data?.quantity, data?.petId, data?.shipDate, data?.reference], [5, 1, "2026-12-01T09:30:00Z", REFERENCE]);
    const without = await V2.PATCH("/store/orders/{orderId}", { ...order(1), body: { reference: null } });
    same(without.data?.reference, undefined);
  },
  "an unknown status": async () => {
    const client = second(`${STUB}/new`);
    same((await client.GET("/store/orders/{orderId}", order(7))).data?.status, "returned");
    same((await client.GET("/store/orders")).data?.data[0].status, "returned");
  },
  "a new field": async () => {
    const client = second(`${STUB}/new`);
    same((await client.GET("/store/orders/{orderId}", order(7))).data?.giftWrap, { colour: "red" });
    same((await client.GET("/usage")).data?.plan, "team");
    same((await client.GET("/store/changes")).data?.data.length, 1);
  },
  "every operation": async () => {
    const names = { v1: ["listOrders", "getPet"], v2: OPERATIONS };
    for (const [version, several] of Object.entries(names)) {
      for (const name of several) same((await call(version, API, name)).error, undefined);
    }
  },
  "every error": () => everyError((version, base, name) => refused(call(version, base, name))),
});
