package routers

import (
	"strings"

	"github.com/headgate-go/headgate"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// AccountKey is the key by which failed logins of an account are counted. One account has one
// key, however its name is typed: "Ann", "ANN " and "Ａｎｎ" are one. Else each spelling that the
// user table takes for the same account would have a limit of its own.
func AccountKey(name string) string {
	folded := norm.NFKC.String(strings.TrimSpace(name)) // width and composition
	return headgate.Key("login", norm.NFKC.String(cases.Fold().String(folded)))
}
