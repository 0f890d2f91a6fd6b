// Package routers shows the middleware of package httplimit on chi, echo and gin. Each
// adapter is made for Options.Settle too. The outcome has the status that the client
// gets, also where the framework writes it after the handler has returned.
package routers

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
)

// Middleware is what httplimit.New and httplimit.NewAll return.
type Middleware = func(http.Handler) http.Handler

// Chi takes the middleware as it is.
func Chi(limit Middleware, login http.HandlerFunc) http.Handler {
	r := chi.NewRouter()
	r.With(limit).Post("/login", login)
	return r
}

// Echo lets the framework answer an error before the middleware settles: echo's own
// answer comes after all middleware, where the outcome would be 200. An error that was
// answered is not returned. Middleware that reads errors belongs inside of this one.
func Echo(limit Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer := c.Response()
			defer c.SetRequest(c.Request()) // the context of the one inside ends with the middleware
			limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, c.Request())
			return nil // or echo would answer the error again
		}
	}
}

// Echo5 is Echo for version 5.
func Echo5(limit Middleware) echo5.MiddlewareFunc {
	return func(next echo5.HandlerFunc) echo5.HandlerFunc {
		return func(c *echo5.Context) error {
			defer c.SetRequest(c.Request())
			limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo5.NewResponse(w, c.Logger()))
				if err := next(c); err != nil {
					c.Echo().HTTPErrorHandler(c, err)
				}
			})).ServeHTTP(c.Response(), c.Request())
			return nil
		}
	}
}

// Gin reports what gin's own ResponseWriter sends. Middleware that answers c.Errors must run
// inside of the adapter: g.POST("/login", Gin(limit), answerErrors, login). Outside, the
// outcome is 200, and no failed login is counted.
func Gin(limit Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		defer func(outer *http.Request) { c.Request = outer }(c.Request)
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed, c.Request, c.Writer = true, r, &ginWriter{c.Writer, w}
			c.Next()
			httplimit.ReportStatus(r.Context(), c.Writer.Status()) // which gin may send later
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// ginWriter is gin's ResponseWriter, which sends by the one of the middleware.
type ginWriter struct {
	gin.ResponseWriter
	limited http.ResponseWriter
}

// WriteHeaderNow sends the status that gin has, once.
func (w *ginWriter) WriteHeaderNow() {
	if !w.Written() {
		w.limited.WriteHeader(w.Status())
	}
	w.ResponseWriter.WriteHeaderNow()
}

func (w *ginWriter) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	return w.limited.Write(b)
}

func (w *ginWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *ginWriter) Flush() {
	w.WriteHeaderNow()
	w.ResponseWriter.Flush()
}

// Unwrap is for http.ResponseController.
func (w *ginWriter) Unwrap() http.ResponseWriter { return w.limited }

func (w *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.limited).Hijack()
}
