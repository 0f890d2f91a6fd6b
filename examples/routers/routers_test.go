package routers

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"
)

// failures returns a middleware that counts failed logins alone: five in 15 minutes.
func failures(t *testing.T) Middleware {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "failed-logins", Algorithm: algo.SlidingLog(algo.Per(5, 15*time.Minute)), OnFailure: headgate.FailOpen,
	}}, nil)
	require.NoError(t, err)
	limit, err := httplimit.New(l, httplimit.RemoteAddr(), &httplimit.Options{
		Settle: func(o *httplimit.Outcome) []int64 {
			if o.Status == http.StatusUnauthorized {
				return nil
			}
			return []int64{0}
		},
	})
	require.NoError(t, err)
	return limit
}

func good(r *http.Request) bool { return r.FormValue("password") == "secret" }

func plain(w http.ResponseWriter, r *http.Request) {
	if !good(r) {
		http.Error(w, "wrong password", http.StatusUnauthorized)
	}
}

// routers serve POST /login, each in its own way to fail.
func routers(t *testing.T) map[string]http.Handler {
	gin.SetMode(gin.TestMode)
	e := echo.New()
	e.POST("/login", func(c echo.Context) error {
		if !good(c.Request()) {
			return echo.NewHTTPError(http.StatusUnauthorized, "wrong password")
		}
		return c.NoContent(http.StatusOK)
	}, Echo(failures(t)))
	e5 := echo5.New()
	e5.POST("/login", func(c *echo5.Context) error {
		if !good(c.Request()) {
			return echo5.NewHTTPError(http.StatusUnauthorized, "wrong password")
		}
		return c.NoContent(http.StatusOK)
	}, Echo5(failures(t)))
	g := gin.New()
	g.POST("/login", Gin(failures(t)), func(c *gin.Context) {
		if !good(c.Request) {
			c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": "wrong password"})
			return
		}
		c.Status(http.StatusOK)
	})
	return map[string]http.Handler{
		"plain": failures(t)(http.HandlerFunc(plain)), "chi": Chi(failures(t), plain), "echo": e, "echo v5": e5, "gin": g,
	}
}

// TestFailedLogins: 1,000 good logins pass, and the sixth bad one is denied.
func TestFailedLogins(t *testing.T) {
	for name, h := range routers(t) {
		t.Run(name, func(t *testing.T) {
			try := func(password string) *httptest.ResponseRecorder {
				r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"password": {password}}.Encode()))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			for range 1000 {
				require.Equal(t, http.StatusOK, try("secret").Code)
			}
			for range 5 {
				w := try("guess")
				require.Equal(t, http.StatusUnauthorized, w.Code)
				require.Contains(t, w.Body.String(), "wrong password")
			}
			w := try("guess")
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			require.Contains(t, w.Body.String(), "quota-exceeded")
			require.NotEmpty(t, w.Header().Get("Retry-After"))
		})
	}
}

// TestOutcome: in each router the outcome is what the client got, also where the handler
// panics after it has answered, streams, or takes the connection over.
func TestOutcome(t *testing.T) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "api", Algorithm: algo.SlidingLog(algo.PerHour(1000)), OnFailure: headgate.FailOpen,
	}}, nil)
	require.NoError(t, err)
	outcomes := make(chan httplimit.Outcome, 9)
	limit, err := httplimit.New(l, httplimit.RemoteAddr(), &httplimit.Options{
		Settle: func(o *httplimit.Outcome) []int64 { outcomes <- *o; return nil },
	})
	require.NoError(t, err)
	answers := map[string]http.HandlerFunc{
		"/panics": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, "guess")
			panic("audit log")
		},
		"/early":   func(http.ResponseWriter, *http.Request) { panic("before") },
		"/writes":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("12345")) },
		"/status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"/streams": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); _, _ = io.WriteString(w, "67") },
		"/hijacks": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		},
	}
	gin.SetMode(gin.TestMode)
	mux, e, e5, g := http.NewServeMux(), echo.New(), echo5.New(), gin.New()
	for path, h := range answers {
		mux.Handle(path, limit(h))
		e.POST(path, func(c echo.Context) error { h(c.Response(), c.Request()); return nil }, Echo(limit))
		e5.POST(path, func(c *echo5.Context) error { h(c.Response(), c.Request()); return nil }, Echo5(limit))
		g.POST(path, Gin(limit), func(c *gin.Context) { h(c.Writer, c.Request) })
	}
	for name, h := range map[string]http.Handler{"plain": mux, "echo": e, "echo v5": e5, "gin": g} {
		server := httptest.NewUnstartedServer(h)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Start()
		defer server.Close()
		for path, want := range map[string]httplimit.Outcome{
			"/panics": {Status: 401, Wrote: true, Written: 5, Panicked: true}, "/early": {Status: 500, Panicked: true},
			"/writes": {Status: 200, Wrote: true, Written: 5}, "/status": {Status: 204, Wrote: name != "gin"}, // which sends it later
			"/streams": {Status: 200, Wrote: true, Written: 2}, "/hijacks": {Hijacked: true},
		} {
			if resp, err := http.Post(server.URL+path, "", nil); err == nil {
				_ = resp.Body.Close()
			}
			o := <-outcomes
			if path == "/hijacks" { // the status of a response that was never sent
				o.Status = 0
			}
			require.Equal(t, want, httplimit.Outcome{Status: o.Status, Wrote: o.Wrote, Written: o.Written, Panicked: o.Panicked, Hijacked: o.Hijacked}, name+path)
		}
	}
}

// TestGinErrors: middleware that answers c.Errors inside of the adapter settles by its
// status. Outside it answers too late: the outcome is 200, so failed logins pass uncounted.
func TestGinErrors(t *testing.T) {
	gin.SetMode(gin.TestMode)
	answerErrors := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(http.StatusUnauthorized, gin.H{"error": c.Errors.Last().Error()})
		}
	}
	login := func(c *gin.Context) { _ = c.Error(errors.New("wrong password")) }
	inside, outside := gin.New(), gin.New()
	inside.POST("/login", Gin(failures(t)), answerErrors, login)
	outside.POST("/login", answerErrors, Gin(failures(t)), login)
	for name, c := range map[string]struct {
		h     http.Handler
		sixth int
	}{"inside": {inside, http.StatusTooManyRequests}, "outside": {outside, http.StatusUnauthorized}} {
		for i := range 6 {
			w := httptest.NewRecorder()
			c.h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", nil))
			want := http.StatusUnauthorized
			if i == 5 {
				want = c.sixth
			}
			require.Equal(t, want, w.Code, "%s %d", name, i)
		}
	}
}

// TestEchoAnswersOnce: an error is answered once, also where the service's own
// HTTPErrorHandler does not look whether the response is committed.
func TestEchoAnswersOnce(t *testing.T) {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) { _ = c.String(http.StatusTeapot, err.Error()+".") }
	e.GET("/", func(echo.Context) error { return errors.New("boom") }, Echo(failures(t)))
	e5 := echo5.New()
	e5.HTTPErrorHandler = func(c *echo5.Context, err error) { _ = c.String(http.StatusTeapot, err.Error()+".") }
	e5.GET("/", func(*echo5.Context) error { return errors.New("boom") }, Echo5(failures(t)))
	for name, h := range map[string]http.Handler{"echo": e, "echo v5": e5} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusTeapot, w.Code, name)
		require.Equal(t, "boom.", w.Body.String(), name)
	}
}

// TestFiber: fiber's own adapter takes a middleware without a Settle.
func TestFiber(t *testing.T) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "api", Algorithm: algo.SlidingLog(algo.PerHour(2)), OnFailure: headgate.FailOpen,
	}}, nil)
	require.NoError(t, err)
	limit, err := httplimit.New(l, httplimit.RemoteAddr(), nil)
	require.NoError(t, err)
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(limit))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	for i, want := range []int{200, 200, 429} {
		resp, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode)
		require.Equal(t, `"api";q=2;w=3600`, resp.Header.Get("RateLimit-Policy"))
		require.Contains(t, resp.Header.Get("RateLimit"), fmt.Sprintf(`"api";r=%d;t=`, max(0, 1-i)))
		if want == 200 {
			require.Equal(t, "hello", string(body))
			continue
		}
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
		require.Contains(t, string(body), `"violated-policies":["api"]`)
	}
}

// TestGinStreams: gin's Stream demands an http.CloseNotifier, also where the middleware
// wraps the engine.
func TestGinStreams(t *testing.T) {
	gin.SetMode(gin.TestMode)
	g := gin.New()
	g.GET("/", func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool {
			_, _ = w.Write([]byte("word "))
			n++
			return n < 3
		})
	})
	server := httptest.NewServer(failures(t)(g))
	defer server.Close()
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestOuterContext: middleware outside of the adapters finds the request as it was.
func TestOuterContext(t *testing.T) {
	ended := map[string]error{}
	g, e, e5 := gin.New(), echo.New(), echo5.New()
	g.Use(func(c *gin.Context) { c.Next(); ended["gin"] = c.Request.Context().Err() })
	g.POST("/login", Gin(failures(t)), func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { err := next(c); ended["echo"] = c.Request().Context().Err(); return err }
	})
	e.POST("/login", func(c echo.Context) error { return c.String(http.StatusOK, "ok") }, Echo(failures(t)))
	e5.Use(func(next echo5.HandlerFunc) echo5.HandlerFunc {
		return func(c *echo5.Context) error { err := next(c); ended["echo5"] = c.Request().Context().Err(); return err }
	})
	e5.POST("/login", func(c *echo5.Context) error { return c.String(http.StatusOK, "ok") }, Echo5(failures(t)))
	for _, h := range []http.Handler{g, e, e5} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", nil))
	}
	require.Equal(t, map[string]error{"gin": nil, "echo": nil, "echo5": nil}, ended)
}
