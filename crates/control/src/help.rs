//! What `nvidia-cuda-mps-control --help` lists: the same options and commands in the same places,
//! in our words.

/// Options and commands.
pub const HELP: &str = "\
cumux control: CUDA Multi-Process Service control for Linux.

  Lets many CUDA programs share one GPU. Without options: reads commands from standard input, one a line.

nvidia-cuda-mps-control [options] [command]
OPTIONS:
  -h,--help                Print this message
  -d,--daemon              Setup the daemon in the background
  -f,--foreground          Setup the daemon in the foreground, with its log on standard output
  -v,--version             Print the version
  -M,--multiuser-server    Serve all users at the same time, each with a server of its own (root only)
  -S,--static-partitioning Clients run on static SM partitions only (sm_partition, CUDA_MPS_SM_PARTITION)
  --per-card               Start a server for each card, for programs that see one alone (CUDA_VISIBLE_DEVICES,
                           devices of a group): what happens to a card is felt by nobody on another (cumux only)
  --isolation <own|shared> Give each client an executor of its own, or one that all share (otherwise
                           CUMUX_ISOLATION, otherwise shared)
  -q,--ready-devices       Ask the driver for its devices at once, not at the first question
  --device <name>          Device of the daemon's servers: cuda:0 or, on the CPU, sim:h200, sim:a100-80,
                           sim:a100, sim:l4, sim:t4, sim:b300,
                           sim:rtx-pro-6000, sim:gb10 (otherwise CUMUX_DEVICE, otherwise cuda:0);
                           several with commas, all for all GPUs of the machine

COMMAND:
  start_server -uid <user id> [-mlopart]
                       Start a server for the given user, with -mlopart on memory-locality partitions of its devices
  shutdown_server <PID> [-f]
                       End a server when its clients are gone, with -f at once
  quit [-t <seconds>]
                       End servers and daemon when all clients are gone, or by force after the given time
  get_server_list
                       Print the process ids of the servers
  get_server_status <PID>
                       Print the status of a server
  get_client_list <PID>
                       Print the process ids of a server's clients
  get_device_client_list [<PID>]
                       Print the devices and the clients on each
  ps [-p PID]
                       Print a table of the clients
  set_default_active_thread_percentage <percentage>
                       Set the share of SMs for clients of servers that start later
  get_default_active_thread_percentage
                       Print that share
  set_active_thread_percentage <PID> <percentage>
                       Set the share of SMs for later clients of a server
  get_active_thread_percentage <PID>
                       Print that share
  set_default_device_pinned_mem_limit <dev> <value>
                       Set the device memory of each client of servers that start later (an integer with G or M)
  get_default_device_pinned_mem_limit <dev>
                       Print that limit
  set_device_pinned_mem_limit <PID> <dev> <value>
                       Set the device memory of each later client of a server
  get_device_pinned_mem_limit <PID> <dev>
                       Print that limit
  set_default_client_priority <priority>
                       Set the priority of later clients: 0 normal, 1 below normal
  get_default_client_priority
                       Print that priority
  terminate_client <server PID> <client PID>
                       End the GPU work of a client; prints 0 when done
  device_query [<PID>] [--csv]
                       Print the devices
  sm_partition add <device UUID> <chunks>
                       Make a static SM partition and print its name for CUDA_MPS_SM_PARTITION (-S)
  sm_partition rm <device UUID>/<partition ID>
                       Remove a static SM partition that has no clients
  lspart
                       Print the table of static SM partitions
  set_default_isolation <own|shared>
                       Give each later client an executor of its own, or the one that all share (cumux only)
  get_default_isolation
                       Print that default (cumux only)
  move_client <client PID> <own|shared>
                       Move a running client to an executor of its own, or back to the shared one (cumux only)
  upgrade <program>
                       Replace executors, keeper and server of all servers by this program while clients work (cumux only)
  group create <name> [<setting>=<value> ...]
                       Make a group of clients with limits for all of them together (cumux only)
  group set <name> <setting>=<value> ...
                       Change the limits of a group (cumux only)
  group rm <name> [force]
                       Remove a group, with force also one that has clients (cumux only)
  group list
                       Print all groups with what they use as JSON (cumux only)
  status --json
                       Print everything about servers and clients as JSON (cumux only)
";
