// Calls of the C# clients that openapi-generator makes (library httpclient), on Mono.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;
using Newtonsoft.Json.Linq;
using PetstoreV2.Model;
using Orders1 = PetstoreV1.Api.OrdersApi;
using Orders2 = PetstoreV2.Api.OrdersApi;
using Usages = PetstoreV2.Api.UsageApi;
using Webhooks = PetstoreV2.Api.WebhooksApi;

public static class Calls
{
    const long Big = 9007199254740993;
    static readonly string Api = Environment.GetEnvironmentVariable("API"), Key = Environment.GetEnvironmentVariable("KEY");
    static readonly string Limited = Environment.GetEnvironmentVariable("LIMITED");
    static readonly string Stub = Environment.GetEnvironmentVariable("STUB");
    static readonly DateTime ShippedAt = new DateTime(2026, 12, 1, 9, 30, 0, DateTimeKind.Utc);
    static readonly DateTime AQuarterLater = ShippedAt.AddMilliseconds(250);

    static string webhook = "wh_1"; // the identifier of the last webhook that was created

    static PetstoreV1.Client.Configuration Settings1(string address, string key)
    {
        return new PetstoreV1.Client.Configuration { BasePath = address + "/v1", AccessToken = key };
    }

    static PetstoreV2.Client.Configuration Settings2(string address, string key)
    {
        return new PetstoreV2.Client.Configuration { BasePath = address + "/v2", AccessToken = key };
    }

    static Orders1 First(string address, string key) { return new Orders1(Settings1(address, key)); }
    static Orders2 Second(string address, string key) { return new Orders2(Settings2(address, key)); }
    static Webhooks Hooks(string address) { return new Webhooks(Settings2(address, Key)); }
    static Usages Usage(string address, string key) { return new Usages(Settings2(address, key)); }

    static readonly Orders1 V1 = First(Api, Key);
    static readonly Orders2 V2 = Second(Api, Key);

    static OrderPlacement Placement(DateTime? shipDate = null, string reference = null)
    {
        // Required fields are sent only if they are set as properties: the constructor does not note them.
        return new OrderPlacement(shipDate: shipDate, reference: reference) { PetId = 1, Quantity = 1 };
    }

    static object Call(string version, string address, string name)
    {
        switch (version + "." + name)
        {
            case "v1.listOrders": return First(address, Key).ListOrders();
            case "v1.cancelOrder": First(address, Key).CancelOrder(7); return null;
            case "v1.getPet": return new PetstoreV1.Api.PetsApi(Settings1(address, Key)).GetPet(1);
            case "v2.listOrders": return Second(address, Key).ListOrders();
            case "v2.getOrder": return Second(address, Key).GetOrder(7);
            case "v2.cancelOrder": Second(address, Key).CancelOrder(7); return null;
            case "v2.putOrder": return Second(address, Key).PutOrder(7, new OrderReplacement(petId: 1, quantity: 1));
            case "v2.updateOrder": return Second(address, Key).UpdateOrder(7, new OrderCorrection(quantity: 2));
            case "v2.shipOrder": return Second(address, Key).ShipOrder(7);
            case "v2.completeOrder": return Second(address, Key).CompleteOrder(7);
            case "v2.batchOrders":
                var ship = new BatchOperation { Operation = BatchOperation.OperationEnum.Ship, OrderId = 12 };
                var operations = new List<BatchOperation> { ship };
                return Second(address, Key).BatchOrders(new OrderBatch(operations) { Operations = operations });
            case "v2.placeOrder": return Second(address, Key).PlaceOrder("k", Placement());
            case "v2.listChanges": return Second(address, Key).ListChanges(limit: 1000);
            case "v2.getUsage": return Usage(address, Key).GetUsage();
            case "v2.createWebhook":
                var url = "https://127.0.0.1:9/";
                var created = Hooks(address).CreateWebhook(new WebhookCreation(url) { Url = url });
                Same(created.Secret.Substring(0, 6), "whsec_");
                webhook = created.Id;
                return created;
            case "v2.listWebhooks": return Hooks(address).ListWebhooks();
            case "v2.getWebhook": return Hooks(address).GetWebhook(webhook);
            case "v2.updateWebhook": return Hooks(address).UpdateWebhook(webhook, new WebhookChange(state: "paused"));
            case "v2.pingWebhook": return Hooks(address).PingWebhook(webhook);
            case "v2.rotateWebhook": return Hooks(address).RotateWebhook(webhook);
            case "v2.deleteWebhook": Hooks(address).DeleteWebhook(webhook); return null;
            default: throw new ArgumentException(name);
        }
    }

    /// <summary>The status, the code and Retry-After of an error.</summary>
    static string Refused(Action call)
    {
        try
        {
            call();
        }
        catch (PetstoreV1.Client.ApiException error)
        {
            return Shown(error.ErrorCode, error.ErrorContent, error.Headers);
        }
        catch (PetstoreV2.Client.ApiException error)
        {
            return Shown(error.ErrorCode, error.ErrorContent, error.Headers);
        }
        throw new Exception("no error");
    }

    static string Shown(int status, object content, IDictionary<string, IList<string>> headers)
    {
        var wait = headers.Where(each => each.Key.Equals("Retry-After", StringComparison.OrdinalIgnoreCase));
        return status + " " + JObject.Parse((string)content)["code"] + " " + string.Join("", wait.SelectMany(each => each.Value));
    }

    static void Same(object found, object expected)
    {
        if (!Equals(found, expected)) throw new Exception(found + " is not " + expected);
    }

    static string Ids(OrderPage page) { return string.Join(" ", page.Data.Select(order => order.Id)); }

    static void ShipDates()
    {
        var orders = V1.ListOrders();
        Same(orders[0].ShipDate.ToUniversalTime(), ShippedAt);
        Same(orders[1].ShipDate.ToUniversalTime(), AQuarterLater);
        Same(V2.GetOrder(2).ShipDate.ToUniversalTime(), AQuarterLater);
    }

    static void BigIds()
    {
        var order = V2.GetOrder(Big);
        Same(string.Join(" ", V1.ListOrders().Last().Id, order.Id, order.Quantity), string.Join(" ", Big, Big, Big));
    }

    static void Null()
    {
        var placed = V2.PlaceOrder("null", Placement());
        Same(placed.Reference + " " + placed.Status, " pending");
    }

    static void NoContent()
    {
        Same((int)V1.CancelOrderWithHttpInfo(5).StatusCode, 204);
        Same((int)V2.CancelOrderWithHttpInfo(6).StatusCode, 204);
    }

    static void NotFound()
    {
        Same(Refused(() => V1.CancelOrder(999)), "404 order_not_found ");
        Same(Refused(() => V2.GetOrder(999)), "404 order_not_found ");
    }

    static void Conflict()
    {
        Same(Refused(() => V1.CancelOrder(4)), "409 order_already_shipped ");
        Same(Refused(() => V2.CancelOrder(4)), "409 order_already_shipped ");
        var order = Placement(ShippedAt, "PO 17 + a");
        var placed = V2.PlaceOrderWithHttpInfo("one", order);
        Same(placed.Data.ShipDate.ToUniversalTime(), ShippedAt);
        Same(placed.Data.Reference, "PO 17 + a");
        Same(placed.Headers["Location"].Single(), "orders/" + placed.Data.Id);
        Same(Refused(() => V2.PlaceOrder("two", order)), "409 reference_in_use ");
    }

    static void TooMany()
    {
        Usage(Api, Limited).GetUsage();
        foreach (var found in new[] {
            Refused(() => Usage(Api, Limited).GetUsage()), Refused(() => First(Api, Limited).ListOrders()) })
        {
            Same(found.Substring(0, found.LastIndexOf(' ')), "429 rate_limit_exceeded");
            Same(int.Parse(found.Split(' ').Last()) > 0, true);
        }
    }

    static void Reference()
    {
        Same(Ids(V2.ListOrders(reference: new List<string> { "Summer order + 2" })), "1");
        Same(Ids(V2.ListOrders(reference: new List<string> { "Summer order + 2", "B" })), "1 2");
    }

    static void Times()
    {
        Same(Ids(V2.ListOrders(shipDateFrom: AQuarterLater, shipDateTo: AQuarterLater.AddDays(1))), "2");
    }

    static void ThreePages()
    {
        var found = "";
        var pages = 0;
        string cursor = null;
        do
        {
            var status = new List<StatusFilter> { StatusFilter.Pending, StatusFilter.Shipped };
            var page = V2.ListOrders(status: status, petId: 77, sort: OrderSort.ID_DESCENDING, limit: 1, cursor: cursor);
            found += Ids(page) + " ";
            cursor = page.NextCursor;
            pages++;
        } while (cursor != null);
        Same(found.Trim(), "13 12 11");
        Same(pages >= 3, true);
    }

    static void OneField()
    {
        var changed = V2.UpdateOrder(1, new OrderCorrection(quantity: 5));
        Same(changed.Quantity + " " + changed.PetId + " " + changed.Reference, "5 1 Summer order + 2");
        Same(changed.ShipDate.ToUniversalTime(), ShippedAt);
        Same(V2.UpdateOrder(1, new OrderCorrection { Reference = null }).Reference, null);
    }

    static void UnknownStatus()
    {
        var orders = Second(Stub + "/new", Key);
        Same(orders.GetOrder(7).Status + " " + orders.ListOrders().Data[0].Status, "returned returned");
    }

    static void NewField()
    {
        var orders = Second(Stub + "/new", Key);
        Same(((JObject)orders.GetOrder(7).AdditionalProperties["giftWrap"])["colour"].ToString(), "red");
        Same(Usage(Stub + "/new", Key).GetUsage().Plan + " " + orders.ListChanges().Data.Count, "team 1");
    }

    static void EveryOperation()
    {
        foreach (var name in "listOrders getPet".Split(' ')) Call("v1", Api, name);
        foreach (var name in "listOrders putOrder updateOrder shipOrder completeOrder batchOrders placeOrder listChanges getUsage getOrder".Split(' ')) Call("v2", Api, name);
        foreach (var name in "createWebhook listWebhooks getWebhook updateWebhook pingWebhook rotateWebhook deleteWebhook".Split(' ')) Call("v2", Api, name);
    }

    static void EveryError()
    {
        foreach (var error in Environment.GetEnvironmentVariable("ERRORS").Split(' '))
        {
            var part = error.Split(':');
            var wait = part[1] == "429" || part[1] == "503" ? "42" : "";
            var found = Refused(() => Call(part[0], Stub + "/" + part[2], part[3]));
            Same(error + " " + found.Substring(0, found.LastIndexOf(' ')), error + " " + part[1] + " " + part[2]);
            if (wait != "") Same(found.Split(' ').Last(), wait);
        }
    }

    [DllImport("libc", EntryPoint = "_exit")]
    static extern void End(int status);

    public static void Main()
    {
        var cases = new Dictionary<string, Action>
        {
            { "ship dates", ShipDates }, { "ids above 2^53", BigIds }, { "null", Null }, { "204", NoContent },
            { "404", NotFound }, { "409", Conflict }, { "429 with Retry-After", TooMany },
            { "a reference with spaces and +", Reference }, { "times in queries", Times },
            { "a page of three", ThreePages }, { "one field changed", OneField },
            { "an unknown status", UnknownStatus }, { "a new field", NewField },
            { "every operation", EveryOperation }, { "every error", EveryError },
        };
        foreach (var each in cases)
        {
            try
            {
                each.Value();
                Console.WriteLine("ok " + each.Key);
            }
            catch (Exception error)
            {
                Console.WriteLine("failed " + each.Key + ": " + (error.InnerException ?? error).ToString().Replace('\n', ' '));
            }
        }
        Console.Out.Flush();
        End(0); // Mono 6.8 now and then aborts while it stops the threads of its HTTP client
    }
}
