/* commands.h: the program's subcommands.
 *
 * Each is a function in its own train/command_NAME.c. argv[0] is the subcommand's name, the options follow. It prints
 * its own error, one line on stderr behind "flamia: ", and returns the exit code (data/error.h). main.c lists those
 * that are in this build.
 */
#ifndef TRAIN_COMMANDS_H
#define TRAIN_COMMANDS_H

int command_train(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_probe(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_recipes(int argc, char **argv);
int command_selftest(int argc, char **argv);
int command_data(int argc, char **argv);
int command_report(int argc, char **argv);

#endif
