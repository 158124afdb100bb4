import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import tlc2.TLC;
import util.SimpleFilenameToStream;
import util.ToolIO;

/**
 * Runs TLC as often as it is asked to, in one process: to start Java and to compile what is used most takes longer than
 * most checks do.
 *
 * Each line read is the arguments of one check, with spaces in between. What TLC says is written when the check has
 * ended, then a line with the word "ended" and TLC's exit code.
 */
class Checker {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(said, true);
            int code = check(request.split(" "), out);
            answers.write(said.toByteArray());
            answers.println();
            answers.println("ended " + code);
            answers.flush();
        }
        System.exit(0); // TLC leaves threads behind that would keep the process.
    }

    private static int check(String[] arguments, PrintStream out) {
        ToolIO.out = out;
        ToolIO.err = out;
        System.setErr(out);
        TLC tlc = new TLC();
        if (!tlc.handleParameters(arguments)) {
            return 1;
        }
        tlc.setResolver(new SimpleFilenameToStream());
        return tlc.process();
    }
}
