package slot

import "strings"

// Parse returns what Tag made the tag of: the key and the sub-key's name. Where
// the tag holds the key's hash, key is "" and ok is true. Other tags are not
// Tag's.
func Parse(tag string) (key, sub string, ok bool) {
	key = tag
	if at := strings.LastIndexByte(tag, mark); at > 0 && tag[0] == mark {
		key, sub = tag[1:at], tag[at+1:]
	}
	if strings.HasPrefix(key, string(mark)) && len(key) == 1+2*hashed {
		return "", sub, true
	}
	return key, sub, Tag(key, sub) == tag
}
