// Package slot computes where a Redis Cluster keeps a key.
package slot

// Count is how many slots a cluster has.
const Count = 16384

// Of returns the slot of a hash tag: CRC16 (XMODEM: polynomial 0x1021,
// initial value 0) mod 16384, as the Redis Cluster specification gives it. It
// takes what stands between the braces, not the whole key.
func Of(tag string) int {
	crc := uint16(0)
	for i := 0; i < len(tag); i++ {
		crc = crc<<8 ^ table[byte(crc>>8)^tag[i]]
	}
	return int(crc % Count)
}

var table = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()
