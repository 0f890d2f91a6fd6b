package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
)

// Money is in micro-dollars. The greatest limit is rule.MaxCount, 10^15 - 1: a month has to
// stay below a billion dollars.
const dollar = 1_000_000

// tokens are those of a call, or micro-dollars per million tokens, of each kind.
type tokens struct{ Input, Cached, Output int64 }

// priceFile has what each model costs, in micro-dollars per million tokens.
//
//go:embed prices.json
var priceFile []byte

var prices = mustPrices(priceFile)

// readPrices reads a file of prices. A model without a price per kind would cost too little.
func readPrices(file []byte) (map[string]tokens, error) {
	models := map[string]tokens{}
	if err := json.Unmarshal(file, &models); err != nil {
		return nil, err
	}
	for model, p := range models {
		if min(p.Input, p.Cached, p.Output) <= 0 {
			return nil, fmt.Errorf("model %q: %+v; want a price above 0 of each kind of tokens", model, p)
		}
	}
	return models, nil
}

func mustPrices(file []byte) map[string]tokens {
	models, err := readPrices(file)
	if err != nil {
		panic(err)
	}
	return models
}

// errUnpriced is a model that has no price: its cost has no bound.
var errUnpriced = errors.New("the model has no price")

// of returns the price of a call, rounded up.
func (p tokens) of(call tokens) int64 {
	const million = 1_000_000
	return (call.Input*p.Input + call.Cached*p.Cached + call.Output*p.Output + million - 1) / million
}
