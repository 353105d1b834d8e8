package client

// Break breaks the worker's connection, as a network would.
func (w *Worker) Break() {
	l := w.session.Load().link
	_ = l.conn.Close()
	<-l.gone
}
