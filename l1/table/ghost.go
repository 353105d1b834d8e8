package table

const (
	// ghostWays is how many places an evicted object may be remembered in.
	ghostWays = 8
	// ghostsEach is how many evicted objects are remembered for each object that
	// the table has room for.
	ghostsEach = 4
	// ghostSteps and turnSteps are how many steps of a ghost's clock of uses, and of
	// that of evictions, a room's number of them has.
	ghostSteps = 8
	turnSteps  = 16
	// staleRooms is how many rooms of uses make what the small queue evicted
	// forgotten there, before the time of that comes round again.
	staleRooms = 32
	// ghostRate is the rate by which it is told which evicted object is worth the least: of the half-lives that are kept the middle one.
	ghostRate = speeds - 1

	tagBits, timeBits, turnBits, gradeBits = 13, 12, 9, 6

	timeAt   = tagBits
	turnAt   = timeAt + timeBits
	gradeAt  = turnAt + turnBits
	tagMask  = 1<<tagBits - 1
	timeMask = 1<<timeBits - 1
	turnMask = 1<<turnBits - 1
)

// A ghost remembers an evicted object: from its lowest bits on, a tag, the time of
// its last use, that of its eviction from the small queue, 0 if it was another,
// and each frequency, in 1/4 octaves. No tag is 0, which marks an empty place. Two
// objects may share a ghost by mistake, about once in 2^10 times; that costs a
// worse guess and nothing else.
type ghost uint64

// A ticker counts events in steps, of which a room's number of events has so many.
type ticker struct {
	part uint32
	now  uint16
}

func (c *ticker) tick(room, steps uint64) {
	if c.part++; uint64(c.part)*steps >= room {
		c.part = 0
		c.now++
	}
}

// ghosts are what is remembered of evicted objects, in 8 bytes each, 32 bytes for
// each object that the table has room for.
type ghosts struct {
	at        []ghost
	uses      ticker
	evictions ticker // from the small queue
}

func newGhosts(objects int) ghosts {
	return ghosts{at: make([]ghost, max(ghostsEach*objects/ghostWays, 1)*ghostWays)}
}

// mix spreads a hash, so that its bits are independent of those that the index
// uses.
func mix(hash uint32) uint32 {
	hash ^= hash >> 16
	hash *= 0x7feb352d
	hash ^= hash >> 15
	hash *= 0x846ca68b
	return hash ^ hash>>16
}

func (g *ghosts) set(hash uint32) (set []ghost, tag ghost) {
	h := mix(hash)
	at := uint64(h) * uint64(len(g.at)/ghostWays) >> 32 * ghostWays
	return g.at[at : at+ghostWays], ghost(max(h*0x9e3779b1>>(32-tagBits), 1))
}

// take finds what is remembered and forgets it.
func (g *ghosts) take(hash uint32) (ghost, bool) {
	set, tag := g.set(hash)
	for i, gh := range set {
		if gh&tagMask == tag {
			set[i] = 0
			return gh, true
		}
	}
	return 0, false
}

// put remembers a trait in the place of the least valuable one.
func (g *ghosts) put(hash uint32, t *trait, small bool, s *scale, rate int, now uint32) {
	set, tag := g.set(hash)
	at, least := 0, int64(1)<<62
	for i, gh := range set {
		if gh == 0 || gh&tagMask == tag {
			at = i
			break
		}
		old := g.trait(gh, s, now)
		if v := s.value(&old, rate, now); v < least {
			at, least = i, v
		}
	}
	steps := uint16(min(uint64(now-t.stamp())*ghostSteps/s.room, timeMask/2))
	gh := tag | ghost((g.uses.now-steps)&timeMask)<<timeAt
	if small {
		gh |= ghost(max(g.evictions.now&turnMask, 1)) << turnAt
	}
	for k, f := range t.f {
		gh |= ghost(min((uint32(f)+octave/8)/(octave/4), 1<<gradeBits-1)) << (gradeAt + gradeBits*k)
	}
	set[at] = gh
}

func (g *ghosts) trait(gh ghost, s *scale, now uint32) trait {
	t := newTrait(now - uint32(min(uint64(g.age(gh))*s.room/ghostSteps, 1<<31)))
	for k := range t.f {
		t.f[k] = uint16(gh>>(gradeAt+gradeBits*k)&(1<<gradeBits-1)) * (octave / 4)
	}
	return t
}

// recent says whether a ghost was evicted from the small queue and no more than
// a room's number of others were since.
func (g *ghosts) recent(gh ghost) bool {
	turn := uint16(gh>>turnAt) & turnMask
	return turn != 0 && g.age(gh) <= staleRooms*ghostSteps && (g.evictions.now-turn)&turnMask <= turnSteps
}

// age is the time since a ghost's last use, in steps.
func (g *ghosts) age(gh ghost) uint16 { return (g.uses.now - uint16(gh>>timeAt)) & timeMask }
