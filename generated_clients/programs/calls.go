// Calls of the Go clients that openapi-generator makes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	v1 "example.com/petstore/v1"
	v2 "example.com/petstore/v2"
)

const big = 9007199254740993

var (
	api, key, limited, stub = os.Getenv("API"), os.Getenv("KEY"), os.Getenv("LIMITED"), os.Getenv("STUB")
	ctx                     = context.Background()
	shippedAt               = time.Date(2026, 12, 1, 9, 30, 0, 0, time.UTC)
	aQuarterLater           = shippedAt.Add(250 * time.Millisecond)
	webhook                 = "wh_1" // the identifier of the last webhook that was created
)

func first(base, key string) *v1.APIClient {
	configuration := v1.NewConfiguration()
	configuration.Servers = v1.ServerConfigurations{{URL: base + "/v1"}}
	configuration.AddDefaultHeader("Authorization", "Bearer "+key)
	return v1.NewAPIClient(configuration)
}

func second(base, key string) *v2.APIClient {
	configuration := v2.NewConfiguration()
	configuration.Servers = v2.ServerConfigurations{{URL: base + "/v2"}}
	configuration.AddDefaultHeader("Authorization", "Bearer "+key)
	return v2.NewAPIClient(configuration)
}

// call makes the call of an operation, by its name in the contract.
func call(version, base, name string) (*http.Response, error) {
	if version == "v1" {
		client := first(base, key)
		switch name {
		case "listOrders":
			_, response, err := client.OrdersAPI.ListOrders(ctx).Execute()
			return response, err
		case "cancelOrder":
			return client.OrdersAPI.CancelOrder(ctx, 7).Execute()
		case "getPet":
			_, response, err := client.PetsAPI.GetPet(ctx, 1).Execute()
			return response, err
		}
	}
	client := second(base, key)
	switch name {
	case "listOrders":
		_, response, err := client.OrdersAPI.ListOrders(ctx).Execute()
		return response, err
	case "getOrder":
		_, response, err := client.OrdersAPI.GetOrder(ctx, 7).Execute()
		return response, err
	case "cancelOrder":
		return client.OrdersAPI.CancelOrder(ctx, 7).Execute()
	case "putOrder":
		order := v2.NewOrderReplacement()
		order.SetPetId(1)
		order.SetQuantity(1)
		_, response, err := client.OrdersAPI.PutOrder(ctx, 7).OrderReplacement(*order).Execute()
		return response, err
	case "updateOrder":
		_, response, err := client.OrdersAPI.UpdateOrder(ctx, 7).OrderCorrection(quantity(2)).Execute()
		return response, err
	case "shipOrder":
		_, response, err := client.OrdersAPI.ShipOrder(ctx, 7).Execute()
		return response, err
	case "completeOrder":
		_, response, err := client.OrdersAPI.CompleteOrder(ctx, 7).Execute()
		return response, err
	case "batchOrders":
		batch := *v2.NewOrderBatch([]v2.BatchOperation{*v2.NewBatchOperation("ship", 12)})
		_, response, err := client.OrdersAPI.BatchOrders(ctx).OrderBatch(batch).Execute()
		return response, err
	case "placeOrder":
		request := client.OrdersAPI.PlaceOrder(ctx).IdempotencyKey("k")
		_, response, err := request.OrderPlacement(*v2.NewOrderPlacement(1, 1)).Execute()
		return response, err
	case "listChanges":
		_, response, err := client.OrdersAPI.ListChanges(ctx).Limit(1000).Execute()
		return response, err
	case "getUsage":
		_, response, err := client.UsageAPI.GetUsage(ctx).Execute()
		return response, err
	case "createWebhook":
		creation := *v2.NewWebhookCreation("https://127.0.0.1:9/")
		created, response, err := client.WebhooksAPI.CreateWebhook(ctx).WebhookCreation(creation).Execute()
		if err == nil {
			webhook = created.GetId()
			if !strings.HasPrefix(created.GetSecret(), "whsec_") {
				err = errors.New("no secret")
			}
		}
		return response, err
	case "listWebhooks":
		_, response, err := client.WebhooksAPI.ListWebhooks(ctx).Execute()
		return response, err
	case "getWebhook":
		_, response, err := client.WebhooksAPI.GetWebhook(ctx, webhook).Execute()
		return response, err
	case "updateWebhook":
		change := *v2.NewWebhookChange()
		change.SetState("paused")
		_, response, err := client.WebhooksAPI.UpdateWebhook(ctx, webhook).WebhookChange(change).Execute()
		return response, err
	case "pingWebhook":
		_, response, err := client.WebhooksAPI.PingWebhook(ctx, webhook).Execute()
		return response, err
	case "rotateWebhook":
		_, response, err := client.WebhooksAPI.RotateWebhook(ctx, webhook).Execute()
		return response, err
	case "deleteWebhook":
		return client.WebhooksAPI.DeleteWebhook(ctx, webhook).Execute()
	}
	return nil, errors.New("no operation " + name)
}

func quantity(number int64) v2.OrderCorrection {
	change := *v2.NewOrderCorrection()
	change.SetQuantity(number)
	return change
}

func place(idempotencyKey string, order v2.OrderPlacement) (*v2.Order, *http.Response, error) {
	return second(api, key).OrdersAPI.PlaceOrder(ctx).IdempotencyKey(idempotencyKey).OrderPlacement(order).Execute()
}

// refusal returns the status, the code and Retry-After of an error.
func refusal(response *http.Response, err error) []any {
	var body []byte
	var of1 *v1.GenericOpenAPIError
	var of2 *v2.GenericOpenAPIError
	switch {
	case errors.As(err, &of1):
		body = of1.Body()
	case errors.As(err, &of2):
		body = of2.Body()
	default:
		return []any{"no error of the API", err, ""}
	}
	var found struct{ Code string }
	if json.Unmarshal(body, &found) != nil {
		return []any{response.StatusCode, string(body), ""}
	}
	return []any{response.StatusCode, found.Code, response.Header.Get("Retry-After")}
}

func same(found, expected any) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("%v is not %v", found, expected)
	}
	return nil
}

func ids(orders []v2.Order) []int64 {
	found := []int64{}
	for _, order := range orders {
		found = append(found, order.GetId())
	}
	return found
}

func shipDates() error {
	orders, _, err := first(api, key).OrdersAPI.ListOrders(ctx).Execute()
	if err != nil {
		return err
	}
	order, _, err := second(api, key).OrdersAPI.GetOrder(ctx, 2).Execute()
	if err != nil {
		return err
	}
	found := []time.Time{orders[0].GetShipDate(), orders[1].GetShipDate(), order.GetShipDate()}
	return same(found, []time.Time{shippedAt, aQuarterLater, aQuarterLater})
}

func bigIds() error {
	orders, _, err := first(api, key).OrdersAPI.ListOrders(ctx).Execute()
	if err != nil {
		return err
	}
	order, _, err := second(api, key).OrdersAPI.GetOrder(ctx, big).Execute()
	if err != nil {
		return err
	}
	found := []int64{orders[len(orders)-1].GetId(), order.GetId(), order.GetQuantity()}
	return same(found, []int64{big, big, big})
}

func null() error {
	orders, _, err := first(api, key).OrdersAPI.ListOrders(ctx).Execute()
	if err != nil {
		return err
	}
	order := *v2.NewOrderPlacement(1, 1)
	order.SetShipDateNil()
	order.SetReferenceNil()
	placed, _, err := place("null", order)
	if err != nil {
		return err
	}
	found := []any{orders[2].HasPetId(), placed.HasShipDate(), placed.HasReference(), placed.GetStatus()}
	return same(found, []any{false, false, false, "pending"})
}

func noContent() error {
	_, one := first(api, key).OrdersAPI.CancelOrder(ctx, 5).Execute()
	_, other := second(api, key).OrdersAPI.CancelOrder(ctx, 6).Execute()
	return errors.Join(one, other)
}

func notFound() error {
	expected := []any{404, "order_not_found", ""}
	one := refusal(first(api, key).OrdersAPI.CancelOrder(ctx, 999).Execute())
	_, response, err := second(api, key).OrdersAPI.GetOrder(ctx, 999).Execute()
	return errors.Join(same(one, expected), same(refusal(response, err), expected))
}

func conflict() error {
	expected := []any{409, "order_already_shipped", ""}
	one := refusal(first(api, key).OrdersAPI.CancelOrder(ctx, 4).Execute())
	other := refusal(second(api, key).OrdersAPI.CancelOrder(ctx, 4).Execute())
	order := *v2.NewOrderPlacement(1, 1)
	order.SetShipDate(shippedAt)
	order.SetReference("PO 17 + a")
	placed, response, err := place("one", order)
	if err != nil {
		return err
	}
	found := []any{placed.GetShipDate(), placed.GetReference(), response.Header.Get("Location")}
	stored := same(found, []any{shippedAt, "PO 17 + a", "orders/" + strconv.FormatInt(placed.GetId(), 10)})
	_, again, err := place("two", order)
	inUse := same(refusal(again, err), []any{409, "reference_in_use", ""})
	return errors.Join(same(one, expected), same(other, expected), stored, inUse)
}

func tooMany() error {
	if _, _, err := second(api, limited).UsageAPI.GetUsage(ctx).Execute(); err != nil {
		return err
	}
	_, response, err := second(api, limited).UsageAPI.GetUsage(ctx).Execute()
	found := refusal(response, err)
	_, response, err = first(api, limited).OrdersAPI.ListOrders(ctx).Execute()
	seconds, wrong := strconv.Atoi(refusal(response, err)[2].(string))
	if wrong != nil || seconds < 1 {
		return fmt.Errorf("Retry-After is %d, %v", seconds, wrong)
	}
	return same(found[:2], []any{429, "rate_limit_exceeded"})
}

func reference() error {
	const spaced = "Summer order + 2"
	one, _, err := second(api, key).OrdersAPI.ListOrders(ctx).Reference([]string{spaced}).Execute()
	if err != nil {
		return err
	}
	both, _, err := second(api, key).OrdersAPI.ListOrders(ctx).Reference([]string{spaced, "B"}).Execute()
	if err != nil {
		return err
	}
	return errors.Join(same(ids(one.Data), []int64{1}), same(ids(both.Data), []int64{1, 2}))
}

func times() error {
	berlin := aQuarterLater.In(time.FixedZone("", 3600))
	request := second(api, key).OrdersAPI.ListOrders(ctx).ShipDateFrom(berlin).ShipDateTo(berlin.AddDate(0, 0, 1))
	page, _, err := request.Execute()
	if err != nil {
		return err
	}
	return same(ids(page.Data), []int64{2})
}

func threePages() error {
	found, pages, cursor := []int64{}, 0, ""
	for more := true; more; pages++ {
		request := second(api, key).OrdersAPI.ListOrders(ctx).PetId(77).Sort(v2.ID_DESCENDING).Limit(1)
		request = request.Status([]v2.StatusFilter{v2.PENDING, v2.SHIPPED})
		if cursor != "" {
			request = request.Cursor(cursor)
		}
		page, _, err := request.Execute()
		if err != nil {
			return err
		}
		found, cursor, more = append(found, ids(page.Data)...), page.GetNextCursor(), page.HasNextCursor()
	}
	return same([]any{found, pages >= 3}, []any{[]int64{13, 12, 11}, true})
}

func oneField() error {
	changed, _, err := second(api, key).OrdersAPI.UpdateOrder(ctx, 1).OrderCorrection(quantity(5)).Execute()
	if err != nil {
		return err
	}
	change := *v2.NewOrderCorrection()
	change.SetReferenceNil()
	without, _, err := second(api, key).OrdersAPI.UpdateOrder(ctx, 1).OrderCorrection(change).Execute()
	if err != nil {
		return err
	}
	found := []any{changed.GetQuantity(), changed.GetPetId(), changed.GetShipDate(), changed.GetReference()}
	stayed := same(found, []any{int64(5), int64(1), shippedAt, "Summer order + 2"})
	return errors.Join(stayed, same(without.HasReference(), false))
}

func unknownStatus() error {
	order, _, err := second(stub+"/new", key).OrdersAPI.GetOrder(ctx, 7).Execute()
	if err != nil {
		return err
	}
	page, _, err := second(stub+"/new", key).OrdersAPI.ListOrders(ctx).Execute()
	if err != nil {
		return err
	}
	return same([]string{order.GetStatus(), page.Data[0].GetStatus()}, []string{"returned", "returned"})
}

func newField() error {
	client := second(stub+"/new", key)
	order, _, err := client.OrdersAPI.GetOrder(ctx, 7).Execute()
	if err != nil {
		return err
	}
	usage, _, err := client.UsageAPI.GetUsage(ctx).Execute()
	if err != nil {
		return err
	}
	changes, _, err := client.OrdersAPI.ListChanges(ctx).Execute()
	if err != nil {
		return err
	}
	found := []any{order.AdditionalProperties["giftWrap"], usage.GetPlan(), len(changes.Data)}
	return same(found, []any{map[string]any{"colour": "red"}, "team", 1})
}

func everyOperation() error {
	const second = "listOrders putOrder updateOrder shipOrder completeOrder batchOrders placeOrder listChanges getUsage getOrder " +
		"createWebhook listWebhooks getWebhook updateWebhook pingWebhook rotateWebhook deleteWebhook"
	for version, names := range map[string]string{"v1": "listOrders getPet", "v2": second} {
		for _, name := range strings.Fields(names) {
			if _, err := call(version, api, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func everyError() error {
	for _, each := range strings.Fields(os.Getenv("ERRORS")) {
		part := strings.Split(each, ":")
		status, _ := strconv.Atoi(part[1])
		found := refusal(call(part[0], stub+"/"+part[2], part[3]))
		if err := same(found[:2], []any{status, part[2]}); err != nil {
			return fmt.Errorf("%s: %w", each, err)
		}
		if (status == 429 || status == 503) && found[2] != "42" {
			return fmt.Errorf("%s: Retry-After is %v", each, found[2])
		}
	}
	return nil
}

func main() {
	for _, each := range []struct {
		name  string
		check func() error
	}{
		{"ship dates", shipDates}, {"ids above 2^53", bigIds}, {"null", null}, {"204", noContent},
		{"404", notFound}, {"409", conflict}, {"429 with Retry-After", tooMany},
		{"a reference with spaces and +", reference}, {"times in queries", times}, {"a page of three", threePages},
		{"one field changed", oneField}, {"an unknown status", unknownStatus}, {"a new field", newField}, {"every operation", everyOperation},
		{"every error", everyError},
	} {
		if err := each.check(); err != nil {
			fmt.Printf("failed %s: %s\n", each.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("ok %s\n", each.name)
		}
	}
}
