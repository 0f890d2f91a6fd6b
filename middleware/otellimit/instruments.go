package otellimit

import "go.opentelemetry.io/otel/metric"

// instruments makes instruments and keeps the errors, so that New checks once
// for all of them.
type instruments struct {
	meter metric.Meter
	errs  []error
}

func kept[T any](i *instruments, v T, err error) T {
	if err != nil {
		i.errs = append(i.errs, err)
	}
	return v
}

func (i *instruments) counter(name, unit, about string) metric.Int64Counter {
	c, err := i.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	return kept(i, c, err)
}

// seconds has bounds from 100 µs, a round trip within a rack, to 1 s, ten of a
// store's default budgets.
func (i *instruments) seconds(name, about string) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(
			0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1))
	return kept(i, h, err)
}

// sizes has bounds in powers of two: a batch of one call, and how often calls
// share one, are what a reader looks for.
func (i *instruments) sizes(name, unit, about string) metric.Int64Histogram {
	h, err := i.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
	return kept(i, h, err)
}

func (i *instruments) gauge(name, unit, about string) metric.Int64ObservableGauge {
	g, err := i.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	return kept(i, g, err)
}

func (i *instruments) total(name, unit, about string) metric.Int64ObservableCounter {
	c, err := i.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	return kept(i, c, err)
}

func (i *instruments) secondsGauge(name, about string) metric.Float64ObservableGauge {
	g, err := i.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
	return kept(i, g, err)
}
