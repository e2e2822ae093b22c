"""HTML for notebooks."""

from sweeper.markup import paragraph, rendered, table


def test_what_users_wrote_is_shown_and_not_obeyed():
    evil = "<script>alert(1)</script>"
    for html in (rendered(f"{evil} [x](javascript:alert(1))"), paragraph(evil), table([evil], [[evil]])):
        assert "<script" not in html
        assert 'href="javascript' not in html


def test_a_table_of_markdown_is_a_table():
    assert "<td>0.5</td>" in rendered("| a |\n| --- |\n| 0.5 |\n")
