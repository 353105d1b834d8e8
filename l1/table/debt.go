package table

const (
	// debtMost is half of the 0.003 of all uses by which the pool is to serve no less
	// than recency would: the way back to it costs something, too.
	debtMost = 0.0015
	// debtBound is the share of all uses that the debt may come to if what the pool lacks
	// is counted as lost: two thirds of 0.003, the rest is for what a sample is wrong by.
	debtBound = 0.002
	// spareRooms is how many pools' worth of uses count besides those there were when it is told
	// what a frequency may owe: of few uses the share is less than one request has blocks.
	spareRooms = 2
	// creditRooms is within how many pools' worth of uses S3-FIFO is to pay back, by what it surely
	// leads by, what it may owe beyond the share.
	creditRooms = 1
	// debtRooms is the half-life of what is known of the samples that the pool lacks, in
	// uses for each object that the cache has room for.
	debtRooms = 64
	// lackedMost is how many times as likely as any sample of recency's cache one that the
	// pool lacks is taken to be used, until the tenth part of a cache has been lacked.
	lackedMost   = 2
	lackedEnough = 0.1
)

// A debt is what the pool, counted on the sample, owes least recently used: the hits that
// this would have had more, and what the pool may yet lose because it lacks objects that
// this has. Of those, some are used while they are lacked, which are the hits, and the
// others would have been evicted in the end anyhow.
type debt struct {
	hits   float64 // negative when the pool had more
	uses   float64
	lacks  int     // samples that recency's cache has and the pool has not
	missed float64 // of such samples, those that were used
	spared float64 // those that recency evicted
	reused float64 // uses of samples that recency's cache had, lacked or not
	left   float64 // samples that it evicted
}

// within says whether the hits owed are no more than a share of the uses. Room is how many
// members recency's cache has.
func (d *debt) within(share float64, room int) bool {
	return d.hits <= share*(d.uses+spareRooms*float64(room))
}

// bound says whether the pool owes as much as it may, and credit hits more, when all is counted
// that it may lose yet: then nothing goes any more but what least recently used would have go.
func (d *debt) bound(room int, credit float64) bool {
	enough := lackedEnough * float64(room)
	expected := min(1, lackedMost*d.reused/max(1, d.reused+d.left))
	p := (d.missed + enough*expected) / (d.missed + d.spared + enough)
	return d.hits+p*float64(d.lacks) > debtBound*d.uses+credit
}

// age has what is known count keep times.
func (d *debt) age(keep float64) {
	d.missed *= keep
	d.spared *= keep
	d.reused *= keep
	d.left *= keep
}
