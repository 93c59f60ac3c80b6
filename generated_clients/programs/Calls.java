// Calls of the Java clients that openapi-generator makes (library native).
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpHeaders;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import petstore.v2.model.BatchOperation;
import petstore.v2.model.OrderBatch;
import petstore.v2.model.OrderCorrection;
import petstore.v2.model.OrderPlacement;
import petstore.v2.model.OrderReplacement;
import petstore.v2.model.OrderSort;
import petstore.v2.model.StatusFilter;
import petstore.v2.model.WebhookChange;
import petstore.v2.model.WebhookCreation;

public final class Calls {
    private static final String API = System.getenv("API"), KEY = System.getenv("KEY");
    private static final String LIMITED = System.getenv("LIMITED"), STUB = System.getenv("STUB");
    private static final long BIG = 9007199254740993L;
    private static final OffsetDateTime SHIPPED_AT = OffsetDateTime.parse("2026-12-01T09:30:00Z");
    private static final OffsetDateTime A_QUARTER_LATER = SHIPPED_AT.plusNanos(250_000_000);

    /** The identifier of the last webhook that was created. */
    private static String webhook = "wh_1";

    private interface Call {
        Object make() throws Exception;
    }

    /** What the case that runs has found to be impossible. */
    private static String known;

    private interface Check {
        void run() throws Exception;
    }

    private static petstore.v1.ApiClient first(String base, String key) {
        petstore.v1.ApiClient client = new petstore.v1.ApiClient();
        client.updateBaseUri(base + "/v1");
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + key));
        return client;
    }

    private static petstore.v2.ApiClient second(String base, String key) {
        petstore.v2.ApiClient client = new petstore.v2.ApiClient();
        client.updateBaseUri(base + "/v2");
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + key));
        return client;
    }

    private static final petstore.v1.api.OrdersApi V1 = new petstore.v1.api.OrdersApi(first(API, KEY));
    private static final petstore.v2.api.OrdersApi V2 = new petstore.v2.api.OrdersApi(second(API, KEY));

    private static petstore.v2.model.OrderPage list(petstore.v2.api.OrdersApi orders) throws Exception {
        return orders.listOrders(null, null, null, null, null, null, null, null, null, null, null);
    }

    private static petstore.v2.model.Usage usage(String base, String key) throws Exception {
        return new petstore.v2.api.UsageApi(second(base, key)).getUsage(null, null, null, null);
    }

    private static Object call(String version, String base, String name) throws Exception {
        if (version.equals("v1")) {
            petstore.v1.api.OrdersApi orders = new petstore.v1.api.OrdersApi(first(base, KEY));
            switch (name) {
                case "listOrders": return orders.listOrders(null);
                case "cancelOrder": orders.cancelOrder(7L); return null;
                case "getPet": return new petstore.v1.api.PetsApi(first(base, KEY)).getPet(1L);
                default: throw new IllegalArgumentException(name);
            }
        }
        petstore.v2.api.OrdersApi orders = new petstore.v2.api.OrdersApi(second(base, KEY));
        petstore.v2.api.WebhooksApi webhooks = new petstore.v2.api.WebhooksApi(second(base, KEY));
        switch (name) {
            case "listOrders": return list(orders);
            case "getOrder": return orders.getOrder(7L, null);
            case "cancelOrder": orders.cancelOrder(7L, null); return null;
            case "putOrder": return orders.putOrder(7L, new OrderReplacement().petId(1L).quantity(1L), null, null);
            case "updateOrder": return orders.updateOrder(7L, new OrderCorrection().quantity(2L), null);
            case "shipOrder": return orders.shipOrder(7L, null, null);
            case "completeOrder": return orders.completeOrder(7L, null);
            case "batchOrders": return orders.batchOrders(new OrderBatch().addOperationsItem(
                new BatchOperation().operation(BatchOperation.OperationEnum.SHIP).orderId(12L)));
            case "placeOrder": return orders.placeOrder("k", placement());
            case "listChanges": return orders.listChanges(null, 1000L, null);
            case "getUsage": return usage(base, KEY);
            case "createWebhook":
                var created = webhooks.createWebhook(new WebhookCreation().url("https://127.0.0.1:9/"));
                same(created.getSecret().substring(0, 6), "whsec_");
                return webhook = created.getId();
            case "listWebhooks": return webhooks.listWebhooks(null);
            case "getWebhook": return webhooks.getWebhook(webhook, null);
            case "updateWebhook": return webhooks.updateWebhook(webhook, new WebhookChange().state("paused"));
            case "pingWebhook": return webhooks.pingWebhook(webhook);
            case "rotateWebhook": return webhooks.rotateWebhook(webhook, null);
            case "deleteWebhook": webhooks.deleteWebhook(webhook); return null;
            default: throw new IllegalArgumentException(name);
        }
    }

    private static OrderPlacement placement() {
        return new OrderPlacement().petId(1L).quantity(1L);
    }

    /** The status, the code and Retry-After of an error. */
    private static List<String> refused(Call call) throws Exception {
        int status;
        String body;
        HttpHeaders headers;
        try {
            call.make();
            throw new AssertionError("no error");
        } catch (petstore.v1.ApiException error) {
            status = error.getCode();
            body = error.getResponseBody();
            headers = error.getResponseHeaders();
        } catch (petstore.v2.ApiException error) {
            status = error.getCode();
            body = error.getResponseBody();
            headers = error.getResponseHeaders();
        }
        String code = new ObjectMapper().readTree(body).get("code").asText();
        return List.of(String.valueOf(status), code, headers.firstValue("Retry-After").orElse(""));
    }

    private static void same(Object found, Object expected) {
        if (!String.valueOf(found).equals(String.valueOf(expected))) {
            throw new AssertionError(found + " is not " + expected);
        }
    }

    private static List<Long> ids(petstore.v2.model.OrderPage page) {
        List<Long> found = new ArrayList<>();
        page.getData().forEach(order -> found.add(order.getId()));
        return found;
    }

    private static void shipDates() throws Exception {
        List<petstore.v1.model.Order> orders = V1.listOrders(null);
        same(orders.get(0).getShipDate().toInstant(), SHIPPED_AT.toInstant());
        same(orders.get(1).getShipDate().toInstant(), A_QUARTER_LATER.toInstant());
        same(V2.getOrder(2L, null).getShipDate().toInstant(), A_QUARTER_LATER.toInstant());
    }

    private static void bigIds() throws Exception {
        List<petstore.v1.model.Order> orders = V1.listOrders(null);
        petstore.v1.model.Order last = orders.get(orders.size() - 1);
        petstore.v2.model.Order order = V2.getOrder(BIG, null);
        same(List.of(last.getId(), last.getQuantity(), order.getId(), order.getQuantity()), List.of(BIG, BIG, BIG, BIG));
    }

    private static void absent() throws Exception {
        same(V1.listOrders(null).get(2).getPetId(), null);
        petstore.v2.model.Order placed = V2.placeOrder("null", placement().shipDate(null).reference(null));
        same(placed.getShipDate() + " " + placed.getReference() + " " + placed.getStatus(), "null null pending");
    }

    private static void noContent() throws Exception {
        same(V1.cancelOrderWithHttpInfo(5L).getStatusCode(), 204);
        same(V2.cancelOrderWithHttpInfo(6L, null).getStatusCode(), 204);
    }

    private static void notFound() throws Exception {
        same(refused(() -> { V1.cancelOrder(999L); return null; }), List.of("404", "order_not_found", ""));
        same(refused(() -> V2.getOrder(999L, null)), List.of("404", "order_not_found", ""));
    }

    private static void conflict() throws Exception {
        same(refused(() -> { V1.cancelOrder(4L); return null; }), List.of("409", "order_already_shipped", ""));
        same(refused(() -> { V2.cancelOrder(4L, null); return null; }), List.of("409", "order_already_shipped", ""));
        OrderPlacement order = placement().shipDate(SHIPPED_AT).reference("PO 17 + a");
        petstore.v2.ApiResponse<petstore.v2.model.Order> placed = V2.placeOrderWithHttpInfo("one", order);
        same(placed.getData().getShipDate().toInstant(), SHIPPED_AT.toInstant());
        same(placed.getData().getReference(), "PO 17 + a");
        String location = placed.getHeaders().get("location").get(0);
        same(URI.create(API + "/v2/store/orders").resolve(location), API + "/v2/store/orders/" + placed.getData().getId());
        same(refused(() -> V2.placeOrder("two", order)), List.of("409", "reference_in_use", ""));
    }

    private static void limited() throws Exception {
        usage(API, LIMITED);
        petstore.v1.api.OrdersApi orders = new petstore.v1.api.OrdersApi(first(API, LIMITED));
        for (Call again : List.<Call>of(() -> usage(API, LIMITED), () -> orders.listOrders(null))) {
            List<String> found = refused(again);
            same(found.subList(0, 2), List.of("429", "rate_limit_exceeded"));
            same(Integer.parseInt(found.get(2)) > 0, true);
        }
    }

    private static void reference() throws Exception {
        List<String> one = List.of("Summer order + 2"), both = List.of("Summer order + 2", "B");
        same(ids(V2.listOrders(null, null, null, null, null, null, one, null, null, null, null)), List.of(1));
        same(ids(V2.listOrders(null, null, null, null, null, null, both, null, null, null, null)), List.of(1, 2));
    }

    private static void times() throws Exception {
        OffsetDateTime from = OffsetDateTime.parse("2026-12-01T10:30:00.250+01:00");
        same(ids(V2.listOrders(null, null, null, from, from.plusDays(1), null, null, null, null, null, null)), List.of(2));
    }

    /** Follows the Link of each page with java.net.URI, and the cursor. */
    private static void threePages() throws Exception {
        List<Long> found = new ArrayList<>();
        List<StatusFilter> status = List.of(StatusFilter.PENDING, StatusFilter.SHIPPED);
        String cursor = null;
        int pages = 0;
        do {
            petstore.v2.ApiResponse<petstore.v2.model.OrderPage> page = V2.listOrdersWithHttpInfo(
                status, 77L, null, null, null, null, null, OrderSort.ID_DESCENDING, 1L, cursor, null);
            found.addAll(ids(page.getData()));
            cursor = page.getData().getNextCursor();
            if (cursor != null) {
                String link = page.getHeaders().get("link").get(0).replaceAll("<(.*)>.*", "$1");
                URI next = URI.create(API + "/v2/store/orders?limit=1").resolve(link);
                same(next.getPath(), "/v2/store/orders");
                same(next.getQuery().endsWith("cursor=" + cursor), true);
            }
            pages++;
        } while (cursor != null);
        same(found, List.of(13, 12, 11));
        same(pages >= 3, true);
    }

    private static void oneField() throws Exception {
        petstore.v2.model.Order changed = V2.updateOrder(1L, new OrderCorrection().quantity(5L), null);
        same(List.of(changed.getQuantity(), changed.getPetId(), changed.getReference()), List.of(5, 1, "Summer order + 2"));
        same(changed.getShipDate().toInstant(), SHIPPED_AT.toInstant());
        OrderCorrection without = new OrderCorrection().reference(null);
        same(V2.updateOrder(1L, without, null).getReference(), "Summer order + 2"); // null is not sent
        known = "cannot remove a value";
    }

    private static void unknownStatus() throws Exception {
        petstore.v2.api.OrdersApi orders = new petstore.v2.api.OrdersApi(second(STUB + "/new", KEY));
        same(orders.getOrder(7L, null).getStatus(), "returned");
        same(list(orders).getData().get(0).getStatus(), "returned");
    }

    private static void newField() throws Exception {
        petstore.v2.api.OrdersApi orders = new petstore.v2.api.OrdersApi(second(STUB + "/new", KEY));
        same(orders.getOrder(7L, null).getAdditionalProperties().get("giftWrap"), Map.of("colour", "red"));
        same(usage(STUB + "/new", KEY).getPlan(), "team");
        same(orders.listChanges(null, null, null).getData().size(), 1);
    }

    private static void everyOperation() throws Exception {
        for (String name : List.of("listOrders", "getPet")) call("v1", API, name);
        String names =
            "listOrders putOrder updateOrder shipOrder completeOrder batchOrders placeOrder listChanges getUsage getOrder";
        String ofWebhooks = "createWebhook listWebhooks getWebhook updateWebhook pingWebhook rotateWebhook deleteWebhook";
        for (String name : (names + " " + ofWebhooks).split(" ")) call("v2", API, name);
    }

    private static void everyError() throws Exception {
        for (String error : System.getenv("ERRORS").split(" ")) {
            String[] part = error.split(":");
            List<String> found = refused(() -> call(part[0], STUB + "/" + part[2], part[3]));
            same(error + found.subList(0, 2), error + List.of(part[1], part[2]));
            if (part[1].equals("429") || part[1].equals("503")) same(found.get(2), "42");
        }
    }

    public static void main(String[] arguments) {
        Map<String, Check> cases = new LinkedHashMap<>();
        cases.put("ship dates", Calls::shipDates);
        cases.put("ids above 2^53", Calls::bigIds);
        cases.put("null", Calls::absent);
        cases.put("204", Calls::noContent);
        cases.put("404", Calls::notFound);
        cases.put("409", Calls::conflict);
        cases.put("429 with Retry-After", Calls::limited);
        cases.put("a reference with spaces and +", Calls::reference);
        cases.put("times in queries", Calls::times);
        cases.put("a page of three", Calls::threePages);
        cases.put("one field changed", Calls::oneField);
        cases.put("an unknown status", Calls::unknownStatus);
        cases.put("a new field", Calls::newField);
        cases.put("every operation", Calls::everyOperation);
        cases.put("every error", Calls::everyError);
        cases.forEach((name, check) -> {
            try {
                known = null;
                check.run();
                System.out.println(known == null ? "ok " + name : "known " + name + ": " + known);
            } catch (Throwable error) {
                System.out.println("failed " + name + ": " + error.toString().replace('\n', ' '));
            }
        });
    }
}
