package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"

	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/server"
)

// accessFlags are those of who may come in.
type accessFlags struct {
	Token       *string  `help:"Word every client must present, and may do everything with. Better give a file. Default: $$SLOTCACHE_TOKEN." placeholder:"WORD"`
	TokenFile   *string  `name:"token-file" help:"File of the words clients must present, one a line: WORD NAMESPACE[,NAMESPACE]|* [shm] [admin]. SIGHUP has it read again. Needed to listen where other machines reach." placeholder:"FILE"`
	AllowUID    []uint32 `name:"allow-uid" help:"User beside the server's own that may connect to its Unix sockets; may be repeated." placeholder:"UID"`
	AllowGID    []uint32 `name:"allow-gid" help:"Group whose members may; may be repeated." placeholder:"GID"`
	SocketMode  *string  `name:"socket-mode" help:"Mode of Unix sockets. Default: 0600." placeholder:"MODE"`
	SocketGroup string   `name:"socket-group" help:"Group of Unix sockets, by name or number, whose members may connect." placeholder:"GROUP"`
}

// admit is who may come in.
func (c *accessFlags) admit(cfg *server.Config, log *slog.Logger) error {
	cfg.Access = server.Access{Users: c.AllowUID, Groups: c.AllowGID}
	if err := c.tokens(&cfg.Access); err != nil {
		return err
	}
	if c.SocketMode != nil {
		mode, err := parseMode("--socket-mode", *c.SocketMode)
		if err != nil {
			return err
		}
		cfg.Access.SocketMode = mode
	}
	if c.SocketGroup != "" {
		id, err := groupID(c.SocketGroup)
		if err != nil {
			return flags.Usagef("--socket-group: %w", err)
		}
		cfg.Access.SocketGroup = &id
		if c.SocketMode == nil {
			cfg.Access.SocketMode = 0o660
		}
	}
	if len(cfg.Listen) == 0 && cfg.Access.SocketMode&0o077 != 0 {
		return flags.Usagef("--socket-mode, --socket-group: nobody else can enter the directory of the default socket; give --listen unix:PATH")
	}
	if len(c.AllowUID)+len(c.AllowGID) > 0 && cfg.Access.SocketMode&0o077 == 0 {
		log.Warn("whom --allow-uid and --allow-gid let in cannot open the socket, which is for its owner: give --listen unix:PATH and --socket-mode 0666, or a --socket-group; others still do not come in",
			"users", c.AllowUID, "groups", c.AllowGID)
	}
	return nil
}

// tokens takes what clients must present. An empty one is rather a variable of a shell or a unit that is not set, and
// would let everybody in.
func (c *accessFlags) tokens(to *server.Access) error {
	switch {
	case c.Token != nil && c.TokenFile != nil:
		return flags.Usagef("--token and --token-file: give one of them")
	case c.Token != nil && *c.Token == "":
		return flags.Usagef("--token: it is empty; to ask for none leave it out")
	case c.TokenFile != nil && *c.TokenFile == "":
		return flags.Usagef("--token-file: its name is empty; to ask for no tokens leave it out")
	case c.TokenFile != nil:
		to.TokenFile = *c.TokenFile
	case c.Token != nil:
		to.Token = *c.Token
	default:
		token, given := os.LookupEnv("SLOTCACHE_TOKEN")
		if given && token == "" {
			return flags.Usagef("SLOTCACHE_TOKEN: it is empty; to ask for none unset it")
		}
		to.Token = token
	}
	return flags.CheckToken(to.Token)
}

// groupID finds the number of a group given by that or by its name.
func groupID(group string) (uint32, error) {
	if id, err := strconv.ParseUint(group, 10, 32); err == nil {
		return uint32(id), nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", group, err)
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q has the number %q", group, g.Gid)
	}
	return uint32(id), nil
}
