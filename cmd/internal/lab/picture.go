package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/picture"
	"github.com/urfave/cli/v2"
)

// htmlFlag asks for a picture of what another flag names.
func htmlFlag(file *string, of string) cli.Flag {
	return &cli.StringFlag{Name: "html", Usage: "draw the run of " + of + " as a page, into `FILE`: what each client, agent and memory node does", Destination: file}
}

// writePicture writes a picture to a file.
func writePicture(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("the picture cannot be written: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("the picture cannot be written: %w", err)
	}
	return nil
}

func simHandover(env *command.Env) *cli.Command {
	var name, html, svg, all string
	return &cli.Command{
		Name: "handover", Usage: "draw how a lock goes from one client to the next",
		Description: "A writer of one compute node holds the lock. Two writers of another node and a reader of its own ask for it meanwhile.\n" +
			"docs/handover.md has the pictures.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "lock", Usage: "`NAME` of the lock, as in bench micro; declock-train: through a train", Value: "declock", Destination: &name},
			&cli.StringFlag{Name: "html", Usage: "write the picture as a page, into `FILE`", Destination: &html},
			&cli.StringFlag{Name: "svg", Usage: "write it as a picture for other pages, into `FILE`", Destination: &svg},
			&cli.StringFlag{Name: "all", Usage: "write the pictures of docs/handover.md into `DIRECTORY`", Destination: &all},
		},
		Action: func(c *cli.Context) error {
			switch {
			case all != "" && (html != "" || svg != "" || c.IsSet("lock")):
				return command.Usage(c, "--all writes the pictures of all locks: without --lock, --html, --svg")
			case all == "" && html == "" && svg == "":
				return command.Usage(c, "--html, --svg or --all says where the picture goes")
			case all != "":
				return drawHandovers(all)
			}
			t, err := picture.Handover(name)
			if errors.Is(err, locks.ErrUnknown) {
				return command.Usage(c, "--lock: %v", err)
			}
			if err != nil {
				return err
			}
			if html != "" {
				err = writePicture(html, t.WriteHTML)
			}
			if svg != "" && err == nil {
				err = writePicture(svg, t.WriteSVG)
			}
			return err
		},
	}
}

// drawHandovers writes the pictures of the documentation.
func drawHandovers(dir string) error {
	for _, name := range picture.Handovers {
		t, err := picture.Handover(name)
		if err != nil {
			return err
		}
		if err := writePicture(filepath.Join(dir, name+".svg"), t.WriteSVG); err != nil {
			return err
		}
	}
	return nil
}
