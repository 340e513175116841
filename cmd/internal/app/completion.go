package app

import (
	"fmt"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/urfave/cli/v2"
)

const completionDescription = `It prints what a shell needs to complete commands and flags of declock with the tab key.

Examples:
   declock completion bash > /etc/bash_completion.d/declock
   source <(declock completion zsh)
   declock completion fish > ~/.config/fish/completions/declock.fish`

// completions are scripts for shells. They ask the program itself, by the flag that the cli package has for that.
var completions = map[string]string{
	"bash": `_declock() {
  local word=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  [[ $word == -* ]] && words+=("$word")
  COMPREPLY=($(compgen -W "$("${words[@]}" FLAG 2>/dev/null)" -- "$word"))
}
complete -o bashdefault -o default -F _declock declock
`,
	"zsh": `#compdef declock
_declock() {
  local -a list
  local word=${words[CURRENT]} line=("${(@)words[1,CURRENT-1]}")
  [[ $word == -* ]] && line+=("$word")
  list=("${(@f)$("${line[@]}" FLAG 2>/dev/null)}")
  if [[ -n $list[1] ]]; then _describe declock list; else _files; fi
}
if [[ $funcstack[1] == _declock ]]; then _declock "$@"; else compdef _declock declock; fi
`,
	"fish": `function __declock
  set -l line (commandline -opc)
  set -l word (commandline -ct)
  string match -q -- '-*' $word; and set -a line $word
  $line FLAG 2>/dev/null
end
complete -c declock -a '(__declock)'
`,
}

func completionCommand(env *command.Env) *cli.Command {
	return command.Complete(&cli.Command{
		Name: "completion", Usage: "print a script for the completion of a shell: bash, zsh or fish", ArgsUsage: "SHELL", Category: "other", Description: completionDescription,
		Action: func(c *cli.Context) error {
			script := completions[c.Args().First()]
			if script == "" {
				return command.Usage(c, "no shell %q: want bash, zsh or fish", c.Args().First())
			}
			_, err := fmt.Fprint(env.Stdout, strings.ReplaceAll(script, "FLAG", command.CompletionFlag))
			return err
		},
	})
}
