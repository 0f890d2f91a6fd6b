package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestShadowOfAnyKey: the event of a call for several keys has the shadow that binds of all
// keys, whichever key binds, by each verb, and also of a key that has shadows alone.
func TestShadowOfAnyKey(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	verbs := map[string]func(...headgate.Part) error{
		"All":        func(p ...headgate.Part) error { _, err := headgate.All(ctx, p...); return err },
		"ReserveAll": func(p ...headgate.Part) error { _, _, err := headgate.ReserveAll(ctx, p...); return err },
		"WaitAll":    func(p ...headgate.Part) error { _, err := headgate.WaitAll(ctx, p...); return err },
	}
	for name, s := range map[string]backend.Store{
		"memory": memory.New(nil), "one by one": oneKey(memory.New(nil)), "standalone": unhurried(t, server),
	} {
		for verb, call := range verbs {
			t.Run(name+"/"+verb, func(t *testing.T) {
				seen := &events{}
				user := limiter(t, s, &headgate.Options{Observer: seen.observe}, daily("user", 10))
				org, err := user.With(daily("org", 100), dailyShadow("planned", 1))
				require.NoError(t, err)
				alone, err := user.With(dailyShadow("alone", 2))
				require.NoError(t, err)
				for i, binds := range []string{"planned", "planned", "alone"} {
					cost := int64(1)
					if i == 2 { // both shadows deny: the longer wait binds
						cost = 3
					}
					require.NoError(t, call(user.Part(verb+"u"), alone.Part(verb+"a", cost), org.Part(verb+"o")))
					events := seen.of(headgate.EventDecision)
					require.Len(t, events, i+1)
					require.Equal(t, verb+"u", events[i].Key)
					shadow := events[i].Shadow
					require.NotNil(t, shadow)
					require.Equal(t, i == 0, shadow.Allowed)
					require.Equal(t, binds, shadow.Policy)
					require.Equal(t, map[string]string{"planned": verb + "o", "alone": verb + "a"}[binds], shadow.Key)
					require.Equal(t, map[string]int{"planned": 2, "alone": 1}[binds], shadow.At)
				}
			})
		}
	}
}
