// What the programs in TypeScript share: running the cases and printing what became of them.
export const { API, KEY, LIMITED, STUB, ERRORS } = process.env as Record<string, string>;
export const SHIPPED_AT = "2026-12-01T09:30:00.000Z";
export const A_QUARTER_LATER = "2026-12-01T09:30:00.250Z";
export const REFERENCE = "Summer order + 2";

export const OPERATIONS = [
  "listOrders", "putOrder", "updateOrder", "shipOrder", "completeOrder", "batchOrders", "placeOrder", "listChanges",
  "getUsage", "getOrder",
  "createWebhook", "listWebhooks", "getWebhook", "updateWebhook", "pingWebhook", "rotateWebhook", "deleteWebhook",
];

export const RECEIVER = "https://127.0.0.1:9/";

export type Refusal = { status: number; code: string; retryAfter: string | null };

export function same(found: unknown, expected: unknown): void {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${one} is not ${other}`);
}

export async function run(cases: Record<string, () => Promise<void | string>>): Promise<void> {
  for (const [name, check] of Object.entries(cases)) {
    try {
      const known = await check();
      console.log(known ? `known ${name}: ${known}` : `ok ${name}`);
    } catch (error) {
      console.log(`failed ${name}: ${String(error).replaceAll("\n", " ")}`);
    }
  }
}

export async function everyError(
  operation: (version: string, base: string, name: string) => Promise<Refusal>,
): Promise<void> {
  for (const error of ERRORS.split(" ")) {
    const [version, status, code, name] = error.split(":");
    const found = await operation(version, `${STUB}/${code}`, name);
    same([error, found.status, found.code], [error, Number(status), code]);
    if (status === "429" || status === "503") same(found.retryAfter, "42");
  }
}
