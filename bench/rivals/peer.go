// A peer in Go's standard library: it lists orders as the service does, with a key, two windows, the same header fields,
// and the bytes of the list kept in memory. Its keys, counts and orders are not stored.
//
//	peer PORT FILE KEY
//
// FILE holds the body of the list. The key's account has the plan enterprise.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

const perMinute, perDay = 100_000_000, 1_000_000_000

type window struct{ start, seconds, limit, used int64 }

// roll begins another window if this one has ended.
func (w *window) roll(now int64) {
	if now >= w.start+w.seconds {
		w.start, w.used = now, 0
	}
}

func (w *window) left() int64 { return w.limit - w.used }

func (w *window) ends() int64 { return w.start + w.seconds }

type account struct {
	sync.Mutex
	minute, day window
}

// admit charges both windows or neither, and returns them as they are then.
func (a *account) admit(now int64) (minute, day window, admitted bool) {
	a.Lock()
	defer a.Unlock()
	a.minute.roll(now)
	a.day.roll(now)
	if admitted = a.minute.left() > 0 && a.day.left() > 0; admitted {
		a.minute.used++
		a.day.used++
	}
	return a.minute, a.day, admitted
}

type api struct {
	accounts map[[32]byte]*account
	body     []byte
	etag     string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = strconv.FormatInt(time.Now().UnixNano(), 36)
	}
	header["X-Request-Id"] = []string{id}
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	account, known := a.accounts[sha256.Sum256([]byte(key))]
	if !known {
		fail(w, 401, "invalid_api_key")
		return
	}
	now := time.Now().Unix()
	minute, day, admitted := account.admit(now)
	shown := minute
	if day.left() < minute.left() {
		shown = day
	}
	header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(shown.limit, 10)}
	header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(shown.left(), 10)}
	header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(shown.ends(), 10)}
	header["Ratelimit-Policy"] = []string{fmt.Sprintf(`"minute";q=%d;w=60, "day";q=%d;w=86400`, minute.limit, day.limit)}
	header["Ratelimit"] = []string{fmt.Sprintf(`"minute";r=%d;t=%d, "day";r=%d;t=%d`,
		minute.left(), minute.ends()-now, day.left(), day.ends()-now)}
	switch {
	case !admitted:
		header["Retry-After"] = []string{strconv.FormatInt(minute.ends()-now, 10)}
		fail(w, 429, "rate_limit_exceeded")
	case r.URL.Path != "/v1/store/orders":
		fail(w, 404, "not_found")
	case r.Method != "GET":
		fail(w, 405, "method_not_allowed")
	default:
		a.list(w, r)
	}
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header["Etag"] = []string{a.etag}
	header["Cache-Control"] = []string{"private, no-cache"}
	header["Vary"] = []string{"Accept-Encoding, Authorization"}
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(304)
		return
	}
	header["Content-Type"] = []string{"application/json"}
	header["Content-Length"] = []string{strconv.Itoa(len(a.body))}
	w.Write(a.body)
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":"%s","message":"%s","status":%d}`, code, http.StatusText(status), status)
}

func main() {
	runtime.GOMAXPROCS(1)
	body, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	digest := sha256.Sum256(body)
	only := &account{
		minute: window{seconds: 60, limit: perMinute},
		day:    window{seconds: 86_400, limit: perDay},
	}
	handler := &api{
		accounts: map[[32]byte]*account{sha256.Sum256([]byte(os.Args[3])): only},
		body:     body,
		etag:     `"` + hex.EncodeToString(digest[:16]) + `"`,
	}
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], handler))
}
